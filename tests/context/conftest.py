"""Requests, tenants and backends for the tests of context; one loaded counter for the whole session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from gateway.context.count import Counter
from gateway.domain.backend import Backend
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.request import CompletionRequest, Controls, Turn
from gateway.domain.tenant import Key, Tenant


@pytest.fixture(scope="session")
def counter() -> Counter:
    counter = Counter()
    counter.load("o200k_base")
    return counter


def turn(role: str, text: str = "", *, calls: Sequence[str] = (), results: Sequence[str] = (), images: int = 0) -> Turn:
    return Turn(-1, role, text, tuple(calls), tuple(results), images)  # type: ignore[arg-type]


def request_of(
    turns: Sequence[Turn],
    *,
    max_output_tokens: int | None = None,
    untouched: bool = False,
    tools: list[dict[str, Any]] | None = None,
) -> CompletionRequest:
    """A chat request with these turns, numbered in order, and the body that belongs to them."""
    messages = []
    for index, one in enumerate(turns):
        one.index = index
        message: dict[str, Any] = {"role": one.role, "content": one.text}
        if one.calls:
            message["tool_calls"] = [
                {"id": call, "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
                for call in one.calls
            ]
        if one.results:
            message["tool_call_id"] = one.results[0]
        messages.append(message)
    body: dict[str, Any] = {"model": "auto", "messages": messages, **({"tools": tools} if tools else {})}
    return CompletionRequest(
        id="req_1",
        dialect="openai_chat",
        raw=orjson.dumps(body),
        body=body,
        model="auto",
        turns=list(turns),
        stream=False,
        max_output_tokens=max_output_tokens,
        temperature=None,
        needs=frozenset(),
        controls=Controls(untouched=untouched),
    )


def tenant_of(max_input_tokens: int | None = None, *, enabled: bool = True) -> Tenant:
    policy = Policy(team="search", context=ContextPolicy(enabled=enabled, max_input_tokens=max_input_tokens))
    return Tenant(Key("k1", "search"), policy)


def backend_of(window_tokens: int | None = None, *, model: str = "plain", **more: Any) -> Backend:
    return Backend(name="small", kind="simulated", model=model, window_tokens=window_tokens, **more)


def hosted_of(window_tokens: int | None = None, *, model: str = "plain") -> Backend:
    return Backend(
        name="small", kind="openai", model=model, window_tokens=window_tokens, base_url="https://api.openai.com/v1"
    )
