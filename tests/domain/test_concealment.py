from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.text.concealment import CONCEALED, Concealer

KEY = "sk-proj-Zt7QxR2mW9bK4vLs/8dHn+1f"
ENDS = ("sk-proj-", "Hn+1f", "n+1f")


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        f"Incorrect API key provided: {KEY.upper()}.",
        f"GET /v1/models?key={quote(KEY, safe='')}&n=1",
        f"GET /v1/models?key={''.join(f'%{ord(char):02x}' for char in KEY)}",
        f"Authorization: Basic {basic(KEY)}",
        f"Authorization: Basic {basic(':' + KEY + ':')}",
        f"Authorization: Basic {basic('me:' + KEY)}",
        f"seen {KEY.encode().hex()}",
        "Incorrect API key provided: sk-proj-Zt7Q********Hn1f",
        "Incorrect API key provided: sk-p********************nn.",
        "key …Hn+1f",
        "key sk-proj-Zt... is wrong",
        "a key beginning with sk-proj-Zt7Q is wrong",
        f"cut off at {KEY[:15]}",
        f"a piece {KEY[8:22]} of it",
        f'{{"key":"{KEY}"}}',
    ],
)
def test_a_key_is_taken_out_in_every_usual_form(text: str) -> None:
    told = Concealer(KEY)(text)
    assert CONCEALED in told
    for place in range(len(KEY) - 6):
        assert KEY[place : place + 7].lower() not in told.lower()


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens is too large: 9000. This model supports at most 4096 completion tokens...",
        "Please ask... later",
        "Invalid value for 'messages[0].content': expected a string, got ********",
        "context_length_exceeded",
        "The skeleton of https://api.example.com/v1/chat/completions is wrong",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert Concealer(KEY)(text) == text


def test_the_last_characters_alone_are_taken_out() -> None:
    assert Concealer("sk-proj-Zt7QxR2mW9bK4vLs8dHn")("the key ending in 8dHn") == f"the key ending in {CONCEALED}"


@pytest.mark.parametrize(("key", "text"), [("", "nothing"), ("EMPTY", "the list is not an empty one")])
def test_a_key_that_is_none_hides_nothing(key: str, text: str) -> None:
    assert Concealer(key)(text) == text


@given(key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=80), around=st.text())
def test_no_key_survives_whatever_stands_around_it(key: str, around: str) -> None:
    if key not in around and key not in CONCEALED:
        assert key not in Concealer(key)(f"{around} {key} {around}")
