"""Messages on a WebSocket as requests, and what of a conversation is kept for the next one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.openai_responses import socket
from gateway.dialects.openai_responses.socket import Kept, body_of, kept_after

SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Blue."}]}
ENDED = {"type": "response.completed", "response": {"id": "resp_1", "output": [SAID]}}


def asked(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def plain(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(orjson.dumps(body))
    return found


def test_a_message_is_a_request_that_streams() -> None:
    fields = {"type": "response.create", "model": "m", "input": "x", "store": False, "stream": False, "generate": True}
    assert body_of(fields, None) == {"model": "m", "input": "x", "store": False, "stream": True}


@pytest.mark.parametrize("given", ["Sure?", [asked("Sure?")]])
def test_the_kept_conversation_is_put_before_what_continues_it(given: Any) -> None:
    kept = kept_after({"input": "Which colour?"}, ENDED)
    assert kept is not None
    body = body_of({"input": given, "previous_response_id": "resp_1"}, kept)
    assert plain(body)["input"] == [asked("Which colour?"), SAID, asked("Sure?")]
    assert "previous_response_id" not in body
    again = kept_after(body, {"response": {"id": "resp_2", "output": [SAID]}})
    assert again is not None
    assert orjson.loads(again.items) == [asked("Which colour?"), SAID, asked("Sure?"), SAID]


@pytest.mark.parametrize("given", [None, [], "x"])
def test_an_empty_part_adds_no_comma(given: Any) -> None:
    kept = kept_after({"input": []}, {"response": {"id": "resp_1", "output": []}})
    assert kept is not None
    sent = plain(body_of({"input": given, "previous_response_id": "resp_1"}, kept))["input"]
    assert sent == ([asked("x")] if given else [])


def test_another_id_is_left_for_what_is_stored() -> None:
    kept = Kept("resp_1", b"[]")
    body = body_of({"input": "x", "previous_response_id": "resp_0"}, kept)
    assert (body["input"], body["previous_response_id"]) == ("x", "resp_0")
    assert kept_after(body, ENDED) is None, "only the store knows what came before"


@pytest.mark.parametrize("ended", [{}, {"response": None}, {"response": {"id": 5, "output": []}}, {"response": {}}])
def test_an_odd_end_keeps_nothing(ended: dict[str, Any]) -> None:
    assert kept_after({"input": "x"}, ended) is None


def test_a_conversation_that_is_too_long_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "MOST_KEPT_BYTES", 100)
    assert kept_after({"input": "x" * 100}, ENDED) is None


def test_data_of_events_are_messages() -> None:
    block = b": hello\n\nevent: a\ndata: {}\n\ndata: [DONE]\n\n"
    assert list(socket.messages(block)) == ["{}"]
    assert orjson.loads(socket.with_status('{"type":"error"}', 502))["status"] == 502
    assert socket.with_status('{"type":"x"}', 502) == '{"type":"x"}'
