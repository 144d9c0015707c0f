"""What a team's policy changes or refuses: budgets, limits, context, data rules, aliases and fallbacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.fakes.provider_script import Fail, Reply
from tests.recorded.case import Case, Server, Spoken, json_body
from tests.recorded.cases.prompts import CLIENT_PATHS, fields

_HELLO = Reply(text="Hello there")
_MOST: dict[Spoken, dict[str, int]] = {
    "chat": {"max_completion_tokens": 2},
    "responses": {"max_output_tokens": 2},
    "messages": {"max_tokens": 2},
    "completions": {"max_tokens": 2},
}
_LONG: list[dict[str, Any]] = [
    {"role": "user", "content": "Tell me of the sea. " * 5},
    {"role": "assistant", "content": "It is wide and blue. " * 5},
    {"role": "user", "content": "And the sky?"},
]


_CLIENTS: tuple[Spoken, ...] = ("chat", "messages")
"""One of each vendor's."""


def cases() -> Iterator[Case]:
    yield from _budgets()
    yield from _priced()
    yield from _limits()
    yield from _context()
    yield from _data()
    yield from _routed()


def _case(name: str, team: str, client: Spoken, server: Server, **asked: Any) -> Case:
    return Case(
        name,
        CLIENT_PATHS[client],
        json_body(**{"model": server.name, **fields(client, "plain"), **asked}),
        (server,),
        team,
        own_waits=True,
    )


def _budgets() -> Iterator[Case]:
    server = Server("budget.spent", "chat", _HELLO, open_to="spent")
    for place in (1, 2, 3):
        yield _case(f"budget, request {place}", "spent", "chat", server, max_completion_tokens=2)
    for client in CLIENT_PATHS:
        yield _case(f"budget spent, {client}", "spent", client, server, **_MOST[client])
    yield _case("budget spent, chat as a stream", "spent", "chat", server, max_completion_tokens=2, stream=True)
    warned = Server("budget.warned", "chat", _HELLO, open_to="warned")
    for place in (1, 2, 3):
        yield _case(f"budget that only warns, request {place}", "warned", "chat", warned)
    truncated = Server("budget.truncated", "chat", Reply(tokens=80), open_to="truncated")
    for place, stream in enumerate((False, True, False), 1):
        mode = "stream" if stream else "plain"
        yield _case(f"budget that truncates, request {place}, {mode}", "truncated", "chat", truncated, stream=stream)


def _priced() -> Iterator[Case]:
    """What a request costs at another service tier, and limits that a backend lowers."""
    price = "{input: 2, output: 8, service_tiers: {priority: 2, flex: 0.5}}"
    for client in _CLIENTS:
        tiered = Server(f"price.tiers.{client}", client, _HELLO, price=price, open_to="plain")
        for tier in ("priority", "flex", "scale"):
            yield _case(f"service tier {tier}, {client}", "plain", client, tiered, service_tier=tier)
    for client in CLIENT_PATHS:
        lowering = Server(
            f"price.lowers.{client}", client, Reply(tokens=12), more="max_output_tokens: 8", open_to="plain"
        )
        asked = dict.fromkeys(_MOST[client], 1000)
        yield _case(f"limit that the backend lowers, {client}", "plain", client, lowering, **asked)
        yield _case(f"limit that the backend sets, {client}", "plain", client, lowering)


def _limits() -> Iterator[Case]:
    slow = Server("limit.requests", "chat", _HELLO, open_to="slow")
    yield _case("request limit, chat 1", "slow", "chat", slow)
    yield _case("request limit, messages 2", "slow", "messages", slow)
    for client in CLIENT_PATHS:
        yield _case(f"request limit reached, {client}", "slow", client, slow)
    tokens = Server("limit.tokens", "chat", _HELLO, open_to="few-tokens")
    yield _case("token limit, request 1", "few-tokens", "chat", tokens, max_completion_tokens=2)
    yield _case("token limit, request too large", "few-tokens", "chat", tokens, messages=_LONG)


def _context() -> Iterator[Case]:
    for client in _CLIENTS:
        server = Server(f"context.{client}", client, _HELLO, open_to="short")
        yield _case(f"context trimmed, {client}", "short", client, server, messages=_LONG)
        kept = _case(f"context untouched, {client}", "short", client, server, messages=_LONG)
        yield replace(kept, headers=(("x-thriftgate-context", "untouched"),))
        one = [{"role": "user", "content": "word " * 200}]
        yield _case(f"context that cannot be trimmed, {client}", "short", client, server, messages=one)


def _data() -> Iterator[Case]:
    away = Server("data.away", "chat", _HELLO, more="location: hosted", open_to="at-home")
    yield _case("data that may not leave", "at-home", "chat", away)
    eu, us = (
        Server(f"data.{region}", "chat", _HELLO, more=f"region: {region}", open_to="regional")
        for region in ("eu", "us")
    )
    yield _case("data in its region", "regional", "chat", eu)
    yield _case("data out of its region", "regional", "chat", us)
    search = {"tools": [{"type": "web_search"}]}
    yield _case(
        "data in its region, a provider's tool", "regional", "responses", replace(eu, name="data.eu.r"), **search
    )
    tier = Server("data.tier", "chat", _HELLO, open_to="standard-tier")
    yield _case("service tier that the policy does not allow", "standard-tier", "chat", tier, service_tier="priority")
    yield _case("service tier that is standard", "standard-tier", "chat", tier, service_tier="default")
    allowed, other = (Server(f"restricted.{name}", "chat", _HELLO, open_to="restricted") for name in ("open", "closed"))
    yield _case("model that the policy allows", "restricted", "chat", allowed)
    yield _case("model that the policy does not allow", "restricted", "chat", other)


def _routed() -> Iterator[Case]:
    first = Server("routed.first", "chat", Fail(503, "too much to do"), open_to="routed")
    second = Server("routed.second", "messages", _HELLO, open_to="routed", price="{input: 20, output: 80}")
    for client in _CLIENTS:
        yield _case(f"alias, {client}", "routed", client, second, model="alias")
    unknown = Server("routed.unknown", "chat", Fail(404, "The model does not exist"), open_to="routed")
    yield _case("backend that does not know its model", "routed", "chat", unknown)
    for client in _CLIENTS:
        both = _case(f"fallback, {client}", "routed", client, first, model="pair")
        yield replace(both, servers=(first, second))
