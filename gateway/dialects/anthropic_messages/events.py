"""Writes the events of a stream as bytes."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.streams.text_run import events_with

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'

_DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
)


def event(fields: dict[str, Any]) -> bytes:
    """The bytes of an event with the data `fields`. The name of the event is the value of the field `type`."""
    return b"event: %b\ndata: %b\n\n" % (fields["type"].encode(), orjson.dumps(fields))


def message_start(message: dict[str, Any]) -> bytes:
    """The events that begin a message: `message_start` and a ping."""
    return event({"type": "message_start", "message": message}) + PING


def block_start(index: int, block: dict[str, Any]) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": block})


def text_delta(index: int, text: str) -> bytes:
    return _DELTA % (index, b"text_delta", b"text", orjson.dumps(text))


def text_deltas(index: int, texts: list[str]) -> bytes:
    """An event for each of `texts`, of which there is at least one."""
    before, after = (_DELTA % (index, b"text_delta", b"text", b'""')).split(b'""')
    return events_with(before + b'"', texts, b'"' + after)


def thinking_delta(index: int, text: str) -> bytes:
    return _DELTA % (index, b"thinking_delta", b"thinking", orjson.dumps(text))


def signature_delta(index: int, signature: str) -> bytes:
    return _DELTA % (index, b"signature_delta", b"signature", orjson.dumps(signature))


def input_delta(index: int, piece: str) -> bytes:
    return _DELTA % (index, b"input_json_delta", b"partial_json", orjson.dumps(piece))


def delta(index: int, fields: dict[str, Any]) -> bytes:
    return event({"type": "content_block_delta", "index": index, "delta": fields})


def block_stop(index: int) -> bytes:
    return b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % index


def message_delta(fields: dict[str, Any], usage: dict[str, Any]) -> bytes:
    """The event with the data that are known only at the end of the message. `fields`: `stop_reason`, `stop_sequence`
    and similar fields."""
    return event({"type": "message_delta", "delta": fields, "usage": usage})
