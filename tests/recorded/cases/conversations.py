"""Conversations: each client dialect over each server dialect, plain and streamed, in the situations that both know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.fakes.provider_script import Step
from tests.recorded.case import Case, Server, Spoken, json_body, server_name
from tests.recorded.cases.prompts import CLIENT_PATHS, fields
from tests.recorded.cases.replies import BROKEN, FAILED, step

_CHAT = (
    *("text", "tool", "two calls", "tool result", "reasoning", "schema", "json object", "choices", "length", "stop"),
    *("logprobs", "image", "counted", "unknown field", "refusal", "filtered", "cached", "uncounted", "unicode"),
)
_RESPONSES = (
    *(
        "text",
        "tool",
        "two calls",
        "tool result",
        "reasoning",
        "sealed reasoning",
        "schema",
        "json object",
        "length",
        "logprobs",
        "image",
    ),
    *("unknown field", "refusal", "filtered", "cached", "uncounted", "unicode"),
)
_MESSAGES = (
    *("text", "tool", "two calls", "tool result", "reasoning", "schema", "length", "stop", "image", "unknown field"),
    *("refusal", "filtered", "cached", "uncounted", "unicode"),
)
_COMPLETIONS = (
    *("text", "choices", "prompts", "tokens", "echo", "length", "stop", "logprobs", "counted", "unknown field"),
    *("uncounted", "unicode"),
)
_PLAIN_ALONE = frozenset({"image", "unknown field", "json object", "stop"})
"""A stream of it shows nothing that others do not show."""
_STREAMED_ALONE = frozenset({"counted"})

PAIRS: dict[tuple[Spoken, Spoken], Sequence[str]] = {
    **{("chat", server): _CHAT for server in ("chat", "messages", "responses")},
    **{("responses", server): _RESPONSES for server in ("responses", "chat", "messages")},
    **{("messages", server): _MESSAGES for server in ("messages", "chat", "responses")},
    ("completions", "completions"): _COMPLETIONS,
    **{("completions", server): ("text", "choices", "length", "echo") for server in ("chat", "messages")},
    ("completions", "responses"): ("text", "echo"),
}
"""Client and server dialect → situations."""
_MISCOUNTED = ("miscounted", "counted as nothing", "counted tenfold", "counted below zero")
_OWN: dict[Spoken, Sequence[str]] = {
    "chat": ("empty", *_MISCOUNTED),
    "responses": ("failed", *_MISCOUNTED),
    "messages": ("padded", "empty", *_MISCOUNTED),
    "completions": ("miscounted",),
}
"""Situations that are told for a dialect over itself only."""
_THOUGHTS = ("two thoughts",)
"""Which only Anthropic's models hand out, sealed, to be handed back."""
_TRANSLATED_FAILURES = ("400", "429", "500", "200 garbage")
_STREAMED_FAILURES = ("400", "500", "200 garbage")


def cases() -> Iterator[Case]:
    for (client, server), situations in PAIRS.items():
        own = _OWN[client] if client == server else _THOUGHTS if server == "messages" else ()
        yield from _answered(client, server, (*situations, *own))
        yield from _broken(client, server)
        yield from _failed(client, server)


def _answered(client: Spoken, server: Spoken, situations: Sequence[str]) -> Iterator[Case]:
    for situation in situations:
        if situation not in _STREAMED_ALONE:
            yield case(client, server, situation, step(situation, server), False)
        if situation not in _PLAIN_ALONE:
            yield case(client, server, situation, step(situation, server), True)


def _broken(client: Spoken, server: Spoken) -> Iterator[Case]:
    """Streams of every pair, plain answers where nothing is translated."""
    for situation, broken in BROKEN.items():
        yield case(client, server, situation, broken, True)
    if client == server:
        yield case(client, server, "cut midway", BROKEN["cut midway"], False)


def _failed(client: Spoken, server: Spoken) -> Iterator[Case]:
    failures: Mapping[str, Step] = FAILED
    if client != server:
        failures = {name: FAILED[name] for name in _TRANSLATED_FAILURES}
    for situation, failure in failures.items():
        yield case(client, server, situation, failure, False)
    if client == server:
        for situation in _STREAMED_FAILURES:
            yield case(client, server, situation, FAILED[situation], True)


def case(client: Spoken, speaks: Spoken, situation: str, answer: Step, stream: bool) -> Case:
    """A conversation with a server of its own, so that nothing learnt from another one shows in it."""
    mode = "stream" if stream else "plain"
    server = Server(server_name(client, speaks, situation, mode), speaks, answer, open_to="plain")
    asked = {"model": server.name, **fields(client, situation), **({"stream": True} if stream else {})}
    return Case(f"{client} over {speaks}: {situation}, {mode}", CLIENT_PATHS[client], json_body(**asked), (server,))
