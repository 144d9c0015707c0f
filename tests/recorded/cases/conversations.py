"""Conversations: each client dialect over each server dialect, plain and streamed, in the situations that both know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fakes.provider_script import Fail, Reply, Step
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


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say hello"}]}),
    "completions": ("/v1/completions", {"prompt": "Say hello"}),
    "responses": ("/v1/responses", {"input": "Say hello"}),
    "messages": ("/v1/messages", {"max_tokens": 200, "messages": [{"role": "user", "content": "Say hello"}]}),
}
"""Client dialect → path, and the least that a request needs."""
SPOKEN: tuple[Spoken, ...] = ("chat", "messages", "responses")
FAILURES: dict[str, Step] = {
    "refused": Fail(400, "no such parameter", param="temperature"),
    "unauthorised": Fail(401),
    "missing": Fail(404),
    "failing": Fail(500),
    "garbage": Fail(200, body="garbage"),
}


def cases() -> Iterator[Case]:
    for client in BODIES:
        for server in SPOKEN:
            for situation, step in SITUATIONS.items():
                for stream in (False, True):
                    yield _case(client, server, situation, step, stream)
            for situation, step in FAILURES.items():
                yield _case(client, server, situation, step, stream=situation == "failing")


def _case(client: str, speaks: Spoken, situation: str, step: Step, stream: bool) -> Case:
    words = [client, speaks, situation.replace(" ", "-"), "stream" if stream else "plain"]
    server = Server(".".join(words), speaks, step)
    path, asked = BODIES[client]
    body: dict[str, Any] = {"model": server.name, **asked}
    if stream:
        body |= {"stream": True}
    return Case(" ".join(words), path, json_body(**body), (server,))
