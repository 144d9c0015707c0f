"""Other endpoints over a backend that has them."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from gateway.dialects.passthrough import form
from gateway.dialects.passthrough.dialect import Endpoint
from gateway.dialects.passthrough.native import Passthrough
from gateway.dialects.passthrough.stream import Events, Opaque
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, Controls

wire = Passthrough()


def moderation(raw: bytes, content_type: bytes = b"application/json") -> CompletionRequest:
    return Endpoint("/moderations").parse(raw, "r", Controls(), {b"content-type": content_type})


def test_of_a_json_body_only_the_model_changes() -> None:
    raw = b'{"input" : "hello", "model":"alias", "n": 1.0}'
    assert wire.body(moderation(raw), "m", None) == raw.replace(b"alias", b"m")
    assert wire.body(moderation(raw), "alias", None) == raw


def test_of_a_form_only_the_model_changes() -> None:
    sent = httpx.Request(
        "POST", "http://x", data={"model": "alias", "prompt": "x"}, files={"file": ("a", b'name="model"\r\n\xff')}
    )
    request = moderation(sent.read(), sent.headers["content-type"].encode())
    body = wire.body(request, "whisper-long-name", None)
    assert body == request.raw.replace(b"\r\nalias\r\n", b"\r\nwhisper-long-name\r\n")
    named = [part for part in form.parts(body, request.headers[b"content-type"]) if part.name == "model"]
    assert [body[part.start : part.end] for part in named] == [b"whisper-long-name"]
    assert (b"content-type", sent.headers["content-type"].encode()) in wire.forwarded(request)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}, Usage(5, output_tokens=2)),
        (
            {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4, "text_tokens": 5}},
            Usage(1, cached_tokens=4, output_tokens=2),
        ),
        ({"prompt_tokens": 5, "total_tokens": 5}, Usage(5)),
        ({"total_tokens": 6}, Usage(6)),
        ({"type": "duration", "seconds": 3}, Usage(9, estimated=True)),
        (None, Usage(9, estimated=True)),
    ],
)
def test_whatever_it_says_of_its_usage_is_read(usage: Any, read: Usage) -> None:
    request = moderation(b'{"model": "m"}')
    request.estimated_tokens = 9
    body = orjson.dumps({"text": "hello", "usage": usage})
    plain = wire.plain(request, body)
    assert (plain.body, plain.usage, plain.finish) == (body, read, "stop")


@pytest.mark.parametrize("body", [b"1\n00:00:00,000 --> 00:00:01,000\nhi", b"[1]", b"null"])
def test_an_answer_may_be_anything(body: bytes) -> None:
    assert wire.plain(moderation(b'{"model": "m"}'), body).body == body


@pytest.mark.parametrize(
    ("content_type", "reader"),
    [
        ("application/json", None),
        ("text/plain; charset=utf-8", None),
        ("text/event-stream; charset=utf-8", Events),
        ("audio/mpeg", Opaque),
        ("application/octet-stream", Opaque),
    ],
)
def test_what_flows_is_told_by_its_type(content_type: str, reader: type | None) -> None:
    found = wire.reader_of(content_type)
    assert (None if found is None else type(found)) is reader
