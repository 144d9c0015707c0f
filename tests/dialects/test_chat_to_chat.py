"""OpenAI chat over OpenAI chat: the client's bytes, with only the changed keys changed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.openai_chat.dialect import parse
from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.registry import LIMITS
from gateway.domain.request import Controls
from gateway.domain.routing.route import ContextPlan
from tests.dialects.samples import USER, steady, streaming
from tests.support.requests import chat_request

RAW = b'{ "model":"auto", "messages":[ {"role":"user","content":"caf\\u00e9 \\/"} ],"top_p":1.0,"x":null,"y":1E2}'
wire = ChatToChat()


def test_with_nothing_to_change_the_very_bytes_go_on() -> None:
    request = chat_request(raw=RAW)
    assert wire.body(request, "auto", None) is RAW
    assert wire.body(request, "auto", ContextPlan(10, 10)) is RAW


def test_only_the_models_name_changes() -> None:
    assert wire.body(chat_request(raw=RAW), 'qu"en', None) == RAW.replace(b'"auto"', b'"qu\\"en"')


def test_a_stream_is_asked_for_its_usage_unless_the_client_did() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true%s}'
    asked = b',"stream_options":{"include_usage":true}'
    assert (
        wire.body(chat_request(raw=raw % b""), "m", None)
        == b'{"stream_options":{"include_usage":true},' + (raw % b"")[1:]
    )
    assert wire.body(chat_request(raw=raw % asked), "m", None) == raw % asked
    other = b',"stream_options": {"include_obfuscation":false,"include_usage":false}'
    merged = b',"stream_options": {"include_obfuscation":false,"include_usage":true}'
    assert wire.body(chat_request(raw=raw % other), "m", None) == raw % merged
    assert wire.body(chat_request(raw=raw % b',"stream_options":null'), "m", None) == raw % asked


def test_log_probabilities_are_asked_for_only_where_they_can_be_taken_out_again() -> None:
    assert orjson.loads(wire.body(chat_request(), "auto", None, logprobs=True))["logprobs"] is True
    assert orjson.loads(wire.body(chat_request(logprobs=None), "auto", None, logprobs=True))["logprobs"] is True
    assert "logprobs" not in orjson.loads(wire.body(streaming(), "auto", None, logprobs=True))
    wanted = chat_request(logprobs=True)
    assert wire.body(wanted, "auto", None, logprobs=True) is wanted.raw


@pytest.mark.parametrize(
    ("limits", "fields", "changed"),
    [
        (("max_completion_tokens",), {}, {"max_completion_tokens"}),
        (("max_completion_tokens",), {"max_tokens": 5}, {"max_tokens"}),
        (("max_completion_tokens",), {"max_completion_tokens": 5, "max_tokens": None}, {"max_completion_tokens"}),
        (("max_tokens",), {}, {"max_tokens"}),
        (("max_tokens",), {"max_completion_tokens": 5}, {"max_completion_tokens", "max_tokens"}),
        (LIMITS, {}, {"max_completion_tokens", "max_tokens"}),
        (LIMITS, {"max_tokens": 6}, {"max_completion_tokens", "max_tokens"}),
    ],
)
def test_an_output_limit_goes_where_the_client_put_its_own_and_where_the_server_reads_it(
    limits: tuple[str, ...], fields: dict[str, Any], changed: set[str]
) -> None:
    request = chat_request(**fields)
    body = orjson.loads(ChatToChat(limits).body(request, "auto", None, max_output_tokens=99))
    assert body == {**request.body, **dict.fromkeys(changed, 99)}


def test_trimmed_context_keeps_the_other_messages_in_their_own_bytes() -> None:
    raw = (
        b'{"model":"m","messages":[{"role" : "system","content":"a\\u00e9"} , {"role":"user","content":"old"},'
        b'{"role":"user","content":[{"type":"text","text":"long"},{"type":"image_url","image_url":{"url":"u"}},'
        b'{"type":"text","text":"er"}]},{"role":"user","content":"last", "z":1.0}],"seed":1.0}'
    )
    plan = ContextPlan(100, 50, drop=frozenset({1}), replace={2: "short"})
    assert wire.body(chat_request(raw=raw), "m", plan) == (
        b'{"model":"m","messages":[{"role" : "system","content":"a\\u00e9"},'
        b'{"role":"user","content":[{"type":"text","text":"short"},{"type":"image_url","image_url":{"url":"u"}}]},'
        b'{"role":"user","content":"last", "z":1.0}],"seed":1.0}'
    )


def test_a_shortened_message_without_text_gets_some() -> None:
    picture = {"type": "image_url", "image_url": {"url": "u"}}
    request = chat_request(
        messages=[{"role": "user", "content": [picture]}, {"role": "assistant", "content": None, "x": 1}]
    )
    body = orjson.loads(wire.body(request, "auto", ContextPlan(9, 5, replace={0: "a", 1: "b"})))
    assert body["messages"] == [
        {"role": "user", "content": [picture, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "b", "x": 1},
    ]


VALUES = st.none() | st.booleans() | st.integers(0, 9) | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
EXTRAS = st.dictionaries(st.sampled_from(["a", "model ", "Model", "x", "é", "messages_"]), VALUES)


@steady
@given(
    EXTRAS,
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), min_size=1, max_size=5),
    st.booleans(),
    st.sets(st.integers(0, 4)),
)
def test_the_backend_gets_what_the_client_sent_but_for_the_changed_keys(
    extras: dict[str, Any], texts: list[str], stream: bool, drop: set[int]
) -> None:
    messages = [{"role": "user", "content": text, "k": None} for text in texts]
    sent = {**extras, "messages": messages, "stream": stream, "model": "auto"}
    raw = orjson.dumps(sent, option=orjson.OPT_INDENT_2)
    request = parse(raw, "r", Controls(), {})
    kept = [message for index, message in enumerate(messages) if index not in drop]
    body = orjson.loads(wire.body(request, "other", ContextPlan(9, 1, drop=frozenset(drop))))
    expected = {**sent, "model": "other", "messages": kept}
    assert body == ({**expected, "stream_options": {"include_usage": True}} if stream else expected)


def test_forwardable_headers_go_on_and_the_clients_key_does_not() -> None:
    raw = orjson.dumps({"model": "auto", "messages": [USER]})
    given_headers = {b"authorization": b"Bearer tg-client", b"openai-beta": b"x=1", b"x-api-key": b"tg-client"}
    request = parse(raw, "r", Controls(), given_headers)
    assert [*wire.headers(request), *wire.forwarded(request)] == [
        (b"content-type", b"application/json"),
        (b"accept", b"application/json"),
        (b"openai-beta", b"x=1"),
    ]
    assert wire.headers(streaming()) == [
        (b"content-type", b"application/json"),
        (b"accept", b"text/event-stream"),
    ]
