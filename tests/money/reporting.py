"""A gateway of priced backends, requests in every dialect, and what scripted providers report of their answers."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest

from gateway.dialects.clients import PATHS
from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.record import Attempt, Record, new_request_id
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import Route
from gateway.routing.router import Router
from tests.fakes.gateway import InProcessGateway, backend, tenant
from tests.fakes.provider import Provider, Raw
from tests.support.pieces import with_ending

FRESH, CACHED, WRITTEN_1H, OUTPUT = 3_000_000, 300_000, 6_000_000, 15_000_000
"""Pico-dollars per token of every backend here."""
PRICE = PriceEntry(
    input=Decimal(3), cached_input=Decimal("0.3"), cache_write_1h=Decimal(6), output=Decimal(15), reasoning=Decimal(15)
)
NO_CACHE = tenant(cache={"enabled": False})
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
DONE = b"data: [DONE]\n\n"

READ = {"input_tokens": 100, "cache_read_input_tokens": 20_000, "cache_creation_input_tokens": 0, "output_tokens": 1}
WRITTEN = {
    "input_tokens": 100,
    "cache_read_input_tokens": 0,
    "cache_creation_input_tokens": 20_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 20_000},
    "output_tokens": 1,
}


def more(provider: Provider) -> tuple[Backend, ...]:
    return (
        backend(provider, "claude", kind="anthropic", price=PRICE),
        backend(provider, "spare", price=PRICE),
    )


class Decided(Router):
    """Takes one decision, whatever the request."""

    def __init__(self, route: Route) -> None:
        self.decision = route

    async def route(self, *args: Any) -> Route:
        return replace(self.decision)

    def learn(self, record: Record) -> None:
        """There is nothing to learn for."""


def request_for(path: str, *, stream: bool = True, **fields: Any) -> CompletionRequest:
    said: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello there"}]},
        "/v1/messages": {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 900},
        "/v1/responses": {"input": "hello there"},
        "/v1/completions": {"prompt": "hello there"},
    }
    body = {"model": "small", "stream": stream, **said[path], **fields}
    return PATHS[path].parse(orjson.dumps(body), new_request_id(), Controls(), {})


def event(said: dict[str, Any]) -> bytes:
    name = b"event: %b\n" % said["type"].encode() if "type" in said else b""
    return b"%bdata: %b\n\n" % (name, orjson.dumps(said))


def begun_message(usage: dict[str, Any], words: int = 4) -> bytes:
    """An Anthropic stream up to its `words` deltas."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "usage": usage}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
    return event({"type": "message_start", "message": message}) + event(block) + event(delta) * words


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **fields: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return event({"id": "c", "object": "chat.completion.chunk", "choices": choices, **fields})


def plain_reply(body: dict[str, Any]) -> Raw:
    raw = orjson.dumps(body)
    return Raw((PLAIN + b"content-length: %d\r\n\r\n" % len(raw) + raw,))


def completion(text: str, usage: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage, **fields}


async def hang_up(gateway: InProcessGateway, request: CompletionRequest, after: bytes = b"word") -> Attempt:
    """Read until `after` has come, then leave; returns the attempt."""
    async with await gateway.serve(request, NO_CACHE) as reply:
        seen = b""
        async for piece in with_ending(reply):
            seen += piece
            if after in seen:
                break
    return gateway.record.attempts[-1]


async def row_of(gateway: InProcessGateway) -> dict[str, Any]:
    return (await gateway.rows())[-1]


def cost_of(row: dict[str, Any]) -> int:
    return int(
        row["input_tokens"] * FRESH
        + row["cached_tokens"] * CACHED
        + row["cache_write_1h_tokens"] * WRITTEN_1H
        + (row["output_tokens"] + row["reasoning_tokens"]) * OUTPUT
    )


EVERY_DIALECT = pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1/completions"]
)
