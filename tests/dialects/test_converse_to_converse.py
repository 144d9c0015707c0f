"""Converse's clients over Converse: the backend's answer passes with all its fields."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.clients import DIALECTS
from gateway.dialects.registry import wire
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, StreamBroken
from tests.dialects.test_bedrock_converse import SPEC, STREAM, asked, heard

WIRE = wire("bedrock_converse", "bedrock_converse")
COUNTS = {"inputTokens": 9, "outputTokens": 7, "cacheReadInputTokens": 5, "totalTokens": 21}
COUNTED = Usage(input_tokens=9, cached_tokens=5, output_tokens=7)
BESIDE = {"usage": COUNTS, "metrics": {"latencyMs": 7}}
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
CALL = {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"at": 1}}}
SOURCE = {"title": "Trees", "location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 2}}}
CITED = {"citationsContent": {"content": [{"text": "ok"}], "citations": [SOURCE]}}
ANSWER = {
    "output": {"message": {"role": "assistant", "content": [THOUGHT, CITED, CALL]}},
    "stopReason": "tool_use",
    **BESIDE,
    "additionalModelResponseFields": {"stop_sequence": None},
}


def test_an_answer_passes_with_fields_that_chat_lacks() -> None:
    body = orjson.dumps(ANSWER)
    plain = WIRE.plain(asked(), body)
    assert (plain.body, plain.usage, plain.finish) == (body, COUNTED, "tool_calls")
    assert plain.choices[0]["message"]["content"] == "ok"
    with pytest.raises(BackendGarbage):
        WIRE.plain(asked(), b"{}")


def test_an_answer_that_passed_is_replayed_as_a_stream() -> None:
    body = {name: value for name, value in ANSWER.items() if name != "metrics"}
    events = heard(b"".join(DIALECTS["bedrock_converse"].replayed(asked(), body)))
    deltas = [value["delta"] for kind, value in events if kind == "contentBlockDelta"]
    assert deltas[2:] == [{"text": "ok"}, {"citation": SOURCE}, {"toolUse": {"input": '{"at":1}'}}]
    assert events[-1] == ("metadata", {"usage": COUNTS})


def delta(value: Any, index: int = 0, padding: str = "ab") -> tuple[str, dict[str, Any]]:
    return "contentBlockDelta", {"delta": value, "contentBlockIndex": index, "p": padding}


STARTED = ("messageStart", {"role": "assistant", "p": "abc"})
EVENTS: list[tuple[str, dict[str, Any]]] = [
    STARTED,
    delta({"reasoningContent": {"text": "hm"}}),
    delta({"reasoningContent": {"signature": "c2ln"}}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    delta({"text": "o"}, 1, "a"),
    delta({"text": "k"}, 1),
    delta({"citation": SOURCE}, 1),
    ("contentBlockStop", {"contentBlockIndex": 1}),
    ("somethingNew", {"value": 1}),
    ("messageStop", {"stopReason": "end_turn", "additionalModelResponseFields": {"a": 1}}),
    ("metadata", {**BESIDE, "trace": {"promptRouter": {"invokedModelId": "m"}}}),
]


def received(events: list[tuple[str, dict[str, Any]]]) -> list[bytes]:
    """The events in the form in which the provider class hands them over."""
    return [b"data: %b\n\n" % orjson.dumps({kind: value}) for kind, value in events]


@pytest.mark.parametrize("together", [True, False])
def test_a_stream_passes_and_its_end_waits_for_the_booking(together: bool) -> None:
    reader = WIRE.reader(asked(path=STREAM))
    pieces = [b"".join(received(EVENTS))] if together else received(EVENTS)
    passed = b"".join(map(reader.feed, pieces))
    reader.eof()
    assert (heard(passed), heard(reader.ending)) == (EVENTS[:-2], EVENTS[-2:])
    assert (reader.usage, reader.finish, reader.ended) == (COUNTED, "stop", True)
    assert reader.delivered_text() == "hm\nok"
    whole = orjson.loads(reader.completion() or b"")
    assert whole["output"]["message"]["content"] == [{"text": "ok"}]
    assert (whole["stopReason"], whole["usage"]["outputTokens"]) == ("end_turn", 7)


FAILED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'


@pytest.mark.parametrize("failed", [FAILED, b'data: {"contentBlockDelta":5}\n\n', b"data: {\n\n"])
def test_what_arrived_before_a_failure_passes(failed: bytes) -> None:
    reader = WIRE.reader(asked(path=STREAM))
    assert heard(reader.feed(b"".join([*received(EVENTS[:6]), failed, *received(EVENTS[6:])]))) == EVENTS[:6]
    with pytest.raises((StreamBroken, BackendGarbage)):
        reader.feed(received(EVENTS)[-1])
    assert (reader.ending, reader.completion()) == (b"", None)


def test_a_stream_without_its_metadata_is_broken() -> None:
    reader = WIRE.reader(asked(path=STREAM))
    assert b"".join(map(reader.feed, received(EVENTS[:-1])))
    with pytest.raises(StreamBroken):
        reader.eof()


@pytest.mark.parametrize(("sent", "kinds"), [(0, ["messageStart"]), (1, []), (6, ["contentBlockStop"]), (8, [])])
def test_a_stream_that_is_cut_ends_as_at_a_length_limit(sent: int, kinds: list[str]) -> None:
    reader = WIRE.reader(asked(path=STREAM))
    reader.feed(b"".join(received(EVENTS[:sent])))
    events = heard(reader.cut(COUNTED) or b"")
    assert [kind for kind, _ in events] == [*kinds, "messageStop", "metadata"]
    assert (events[-2][1]["stopReason"], events[-1][1]["usage"]["outputTokens"]) == ("max_tokens", 7)


def test_shortened_names_of_tools_are_the_clients_again() -> None:
    name = "look_" * 14
    request = asked(path=STREAM, toolConfig={"tools": [{"toolSpec": {**SPEC, "name": name}}]})
    sent = orjson.loads(WIRE.body(request, "amazon.nova-pro-v1:0", None))["toolConfig"]["tools"][0]["toolSpec"]["name"]
    assert sent != name
    call = {"toolUse": {"toolUseId": "t1", "name": sent, "input": {}}}
    body = {**ANSWER, "output": {"message": {"role": "assistant", "content": [call]}}}
    told = orjson.loads(WIRE.plain(request, orjson.dumps(body)).body)
    assert told["output"]["message"]["content"][0]["toolUse"]["name"] == name
    reader = WIRE.reader(request)
    start = {"start": {"toolUse": {"toolUseId": "t1", "name": sent}}, "contentBlockIndex": 0}
    pieces = received([STARTED, ("contentBlockStart", start), ("contentBlockStop", {"contentBlockIndex": 0})])
    assert name.encode() in b"".join(map(reader.feed, pieces))
