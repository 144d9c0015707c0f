"""Which requests deserve the same answer."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.canonical import canonical
from tests.support.requests import chat_request


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "u"},
        {"metadata": {"a": "b"}, "store": True},
        {"safety_identifier": "s", "prompt_cache_key": "p", "service_tier": "flex"},
        {"temperature": None, "invented": None},
    ],
)
def test_how_it_travels_and_who_asks_makes_no_difference(fields: dict[str, Any]) -> None:
    assert canonical(chat_request(**fields)) == canonical(chat_request())


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"seed": 1},
        {"invented": "tomorrow"},
        {"logprobs": True},
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"model": "other"},
    ],
)
def test_everything_else_does_even_a_field_nobody_has_heard_of(fields: dict[str, Any]) -> None:
    assert canonical(chat_request(**fields)) != canonical(chat_request())


def test_the_request_itself_stays_as_it_was() -> None:
    request = chat_request(stream=True, user="u")
    canonical(request)
    assert request.body["stream"] is True
    assert request.body["user"] == "u"
