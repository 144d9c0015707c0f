from __future__ import annotations

import orjson
import pytest

from gateway.dialects.openai_chat.logprobs import can_ask, with_logprobs, without
from tests.support.requests import chat_request

LOGPROBS = {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}], "refusal": None}


def event(**choice: object) -> bytes:
    chunk = {"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}, **choice}]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def test_the_request_asks_for_what_the_client_did_not() -> None:
    asked = chat_request(stream=True, temperature=0)
    told = with_logprobs(asked)
    assert orjson.loads(told.raw) == {**asked.body, "logprobs": True} == told.body
    assert "logprobs" not in asked.body
    assert (told.id, told.stream) == (asked.id, True)


@pytest.mark.parametrize(
    ("fields", "can"), [({"stream": True}, True), ({}, False), ({"stream": True, "logprobs": True}, False)]
)
def test_only_streams_whose_client_did_not_ask_need_it(fields: dict[str, bool], can: bool) -> None:
    assert can_ask(chat_request(**fields)) is can  # type: ignore[arg-type]


def test_the_answer_is_as_if_nobody_had_asked() -> None:
    plain = event(logprobs=None, finish_reason=None) + event(delta={}, finish_reason="stop") + b"data: [DONE]\n\n"
    assert without(plain) == plain
    heard = event(logprobs=LOGPROBS, finish_reason=None) + b": comment\n\n" + event(finish_reason="stop")
    assert without(heard) == event(logprobs=None, finish_reason=None) + b": comment\n\n" + event(finish_reason="stop")


def test_what_the_text_says_of_it_stays() -> None:
    said = b'data: {"choices":[{"index":0,"delta":{"content":"\\"logprobs\\": {}"},"logprobs":{"content":[]}}]}\r\n\r\n'
    assert without(said) == said.replace(b'"logprobs":{"content":[]}', b'"logprobs":null')
