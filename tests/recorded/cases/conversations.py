"""Conversations: each client dialect over each server dialect, plain and streamed, in the situations that both know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fakes.provider_script import Reply, Step
from tests.recorded.case import Case, Server, Spoken, json_body

SITUATIONS: dict[str, Step] = {
    "text": Reply(text="Hello there, friend"),
    "tool": Reply(tool="lookup"),
    "reasoning": Reply(text="Four", reasoning="Two and two"),
    "unicode": Reply(text="¿Qué tal? 日本 🌈", split=True, crlf=True),
    "cached": Reply(text="Known", cached_tokens=2),
    "length": Reply(text="Hello there, friend", finish="length"),
    "filtered": Reply(text="I would", finish="content_filter"),
    "uncounted": Reply(text="Hello there", usage="absent"),
    "cut": Reply(text="Hello there, friend", cut="fin", after=1),
    "error event": Reply(text="Hello there, friend", error_event="the engine stopped", after=1),
}


def cases() -> Iterator[Case]:
    for server in ("chat", "messages"):
        for situation, step in SITUATIONS.items():
            for stream in (False, True):
                yield _case("chat", server, situation, step, stream)


def _case(client: str, speaks: Spoken, situation: str, step: Step, stream: bool) -> Case:
    words = [client, speaks, situation.replace(" ", "-"), "stream" if stream else "plain"]
    server = Server(".".join(words), speaks, step)
    body: dict[str, Any] = {"model": server.name, "messages": [{"role": "user", "content": "Say hello"}]}
    if stream:
        body |= {"stream": True}
    return Case(" ".join(words), "/v1/chat/completions", json_body(**body), (server,))
