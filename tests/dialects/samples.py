"""Requests, streams and golden files for the tests of dialects."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, settings

from gateway.domain.request import CompletionRequest
from gateway.errors import StreamBroken
from tests.support.requests import chat_request, user

GOLDEN = Path(__file__).parent / "golden"
steady = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Properties on a busy machine: no stop-watch."""
USER = user()


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def streaming(*, wants_usage: bool = False, **fields: Any) -> CompletionRequest:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if wants_usage else {}
    return chat_request(stream=True, **options, **fields)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **top: Any) -> bytes:
    """One event of a chat stream; `delta=None` makes one without choices."""
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": finish}]
    shared = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event({**shared, "choices": choices, **top})


def text(content: str) -> bytes:
    return chunk({"content": content})


def event(data: Any) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def named(said: dict[str, Any]) -> bytes:
    """One event of the dialects whose events have names."""
    return b"event: %s\ndata: %s\n\n" % (said["type"].encode(), orjson.dumps(said))


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The JSON events of a stream."""
    lines = [line.removeprefix(b"data: ") for line in stream.splitlines() if line.startswith(b"data: ")]
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
STOP = chunk({}, "stop")
USAGE_ONLY = chunk(None, usage=USAGE)
DONE = b"data: [DONE]\n\n"


def cut(stream: bytes, at: list[int]) -> list[bytes]:
    """`stream` in the pieces that the sorted positions make."""
    bounds = [0, *sorted({min(position, len(stream)) for position in at}), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds) if start < end]


def read(reader: Any, pieces: list[bytes]) -> bytes:
    """Feed everything as a backend would, to the end; what was relayed, without the ending."""
    relayed = b""
    for piece in pieces:
        relayed += reader.feed(piece)
        if reader.ended:
            break
    reader.eof()
    return relayed


def read_until_broken(reader: Any, pieces: list[bytes]) -> tuple[bytes, str]:
    """Feed everything, whatever comes after the end; what was relayed, and how the stream broke, if it did."""
    relayed = b""
    try:
        for piece in pieces:
            relayed += reader.feed(piece)
        reader.eof()
    except StreamBroken as error:
        return relayed, error.message
    return relayed, ""
