"""Answers from the exact cache: each kind of answer, told again plain and as a stream, and what headers change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.recorded.case import Case, Server, Spoken, json_body, server_name
from tests.recorded.cases.prompts import CLIENT_PATHS, fields
from tests.recorded.cases.replies import step

_SITUATIONS: dict[tuple[Spoken, Spoken], tuple[str, ...]] = {
    ("chat", "chat"): ("text", "tool", "reasoning", "refusal", "choices", "logprobs", "counted", "length"),
    ("chat", "messages"): ("text", "reasoning"),
    ("responses", "responses"): ("text", "tool", "reasoning", "schema", "length"),
    ("responses", "chat"): ("text", "reasoning"),
    ("messages", "messages"): ("text", "tool", "reasoning", "stop"),
    ("messages", "chat"): ("text", "reasoning"),
    ("completions", "completions"): ("text", "echo"),
    ("completions", "chat"): ("text",),
}
_STEPS: tuple[tuple[str, bool], ...] = (("asked first", False), ("again", False), ("again", True))
_STREAMED_STEPS: tuple[tuple[str, bool], ...] = (("asked first", True), ("again", True), ("again", False))
_CONTROLLED: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("only, unknown", (("x-thriftgate-cache", "only"),)),
    ("first, with tags", (("x-thriftgate-cache-tags", "docs,docs-v1"),)),
    ("again", ()),
    ("bypass", (("x-thriftgate-cache", "bypass"),)),
    ("refresh", (("x-thriftgate-cache", "refresh"),)),
    ("only, known", (("x-thriftgate-cache", "only"),)),
)


def cases() -> Iterator[Case]:
    for (client, speaks), situations in _SITUATIONS.items():
        for situation in situations:
            yield from _repeated(client, speaks, situation, "plain", _STEPS)
        yield from _repeated(client, speaks, "text", "stream", _STREAMED_STEPS)
    yield from _embeddings()
    for client in CLIENT_PATHS:
        yield from _controlled(client)


def _repeated(
    client: Spoken, speaks: Spoken, situation: str, first: str, steps: tuple[tuple[str, bool], ...]
) -> Iterator[Case]:
    server = Server(
        server_name("cached", client, speaks, situation, first), speaks, step(situation, speaks), open_to="cached"
    )
    for place, (what, stream) in enumerate(steps, 1):
        mode = "stream" if stream else "plain"
        body = _body(client, server, situation, stream)
        title = f"cached {client} over {speaks}: {situation}, {first}, {place}: {what}, {mode}"
        yield Case(title, CLIENT_PATHS[client], body, (server,), "cached")


def _embeddings() -> Iterator[Case]:
    server = Server("cached.embeddings", "openai", open_to="cached")
    for place in (1, 2):
        body = json_body(model=server.name, input="Hello")
        yield Case(f"cached embeddings, {place}", "/v1/embeddings", body, (server,), "cached")


def _controlled(client: Spoken) -> Iterator[Case]:
    server = Server(f"cached.{client}.controlled", client, step("text", client), open_to="cached")
    for what, headers in _CONTROLLED:
        body = _body(client, server, "text", False)
        yield Case(f"cached {client}: {what}", CLIENT_PATHS[client], body, (server,), "cached", headers=headers)


def _body(client: Spoken, server: Server, situation: str, stream: bool) -> bytes:
    asked: dict[str, Any] = {"model": server.name, **fields(client, situation)}
    if stream:
        asked["stream"] = True
    else:
        asked.pop("stream_options", None)
    return json_body(**asked)
