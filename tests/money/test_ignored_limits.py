"""A provider that ignores `max_tokens`, hides what it generates or goes on after its end does not overrun a budget."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.backend import Backend
from gateway.domain.tenant import Tenant
from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import OUTPUT, InProcessGateway, backend, open_gateway, tenant
from tests.fakes.provider import Provider, Raw
from tests.money.reporting import DONE, NO_CACHE, STREAM, chunk, request_for, row_of

BUDGET_TOKENS = 1000
FLOOD = 20_000
"""Chunks of a token, without a pause."""
USAGE = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
CALL = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]}
FLOODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text": ({"role": "assistant"}, {"content": "tok "}),
    "thinking": ({"role": "assistant"}, {"reasoning_content": "tok "}),
    "text during a call": (CALL, {"content": "tok "}),
}
"""The first delta, and the delta that is repeated. A client of Messages gets the text after a call only at the end."""


def poor(rule: str) -> Tenant:
    usd = str(BUDGET_TOKENS * OUTPUT / 1e12)
    return tenant(cache={"enabled": False}, budget={"limit_usd": usd, "window": "day", "on_exhausted": rule})


def chat_only(provider: Provider) -> tuple[Backend, ...]:
    return (backend(provider, "chat", dialects=("openai_chat",)),)


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, more=chat_only) as opened:
        yield opened


def flood(kind: str, pieces: int = 200) -> Raw:
    first, delta = FLOODS[kind]
    piece = chunk(delta) * (FLOOD // pieces)
    ended = chunk({}, "stop") + chunk(None, usage=USAGE) + DONE
    return Raw((STREAM + chunk(first), 0.05, *([piece] * pieces), ended), then="fin")


@pytest.mark.parametrize("rule", ["refuse", "truncate"])
@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_flood_beyond_the_clients_limit_costs_little_more_than_the_budget(
    gateway: InProcessGateway, path: str, kind: str, rule: str
) -> None:
    gateway.provider.script(flood(kind))
    request = request_for(path, model="chat", max_tokens=50)
    if rule == "refuse":
        with pytest.raises(BudgetExhausted):
            await gateway.read(request, poor(rule))
    else:
        await gateway.read(request, poor(rule))
    row = await row_of(gateway)
    assert BUDGET_TOKENS * 0.5 <= row["output_tokens"] + row["reasoning_tokens"] <= BUDGET_TOKENS * 5


@pytest.mark.parametrize("per_event", [5, 50, 200])
async def test_a_stream_whose_events_get_longer_costs_at_most_twice_what_is_held(
    gateway: InProcessGateway, per_event: int
) -> None:
    """Most bytes of the first events are not text."""
    wide = {"system_fingerprint": "fp_" + "0" * 60}
    begun = [chunk({"content": "tok "}, **wide), 0.001] * (BUDGET_TOKENS // 10)
    more = [chunk({"content": "tok " * per_event}, **wide), 0.001] * (10 * BUDGET_TOKENS // per_event)
    gateway.provider.script(Raw((STREAM + chunk({"role": "assistant"}), *begun, *more), then="fin"))
    with pytest.raises(BudgetExhausted):
        await gateway.read(request_for("/v1/chat/completions", max_tokens=BUDGET_TOKENS - 100), poor("refuse"))
    row = await row_of(gateway)
    assert BUDGET_TOKENS <= row["output_tokens"] <= 2 * (1.5 * BUDGET_TOKENS) + per_event


@pytest.mark.parametrize("odd", [b"t\x01k ", rb"t\qk ", b"t\xffk ", rb"\ud800 "])
async def test_one_invalid_character_does_not_hide_a_stream_from_the_check_of_its_usage(
    gateway: InProcessGateway, odd: bytes
) -> None:
    said = chunk({"content": "tok "})
    piece = said * 100 + said.replace(b"tok ", odd) + said * 899
    ended = chunk({}, "stop") + chunk(None, usage=USAGE) + DONE
    gateway.provider.script(Raw((STREAM + chunk({"role": "assistant"}), piece, ended), then="fin"))
    await gateway.read(request_for("/v1/chat/completions"), NO_CACHE)
    row = await row_of(gateway)
    assert 900 <= row["output_tokens"] <= 1100
    assert (row["estimated"], row["doubt"]) == (True, "output_tokens")


async def test_an_answer_that_cannot_be_ended_early_ends_with_the_error_of_the_budget(
    gateway: InProcessGateway,
) -> None:
    """The end of a Responses stream repeats the arguments of its calls, which must be texts."""

    def call(**function: Any) -> bytes:
        return chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]})

    words = [chunk({"content": "tok "}) * 100] * 100
    begin = STREAM + call(name="f", arguments="") + call(arguments=[1])
    gateway.provider.script(Raw((begin, *words, chunk({}, "stop"), DONE), then="fin"))
    with pytest.raises(BudgetExhausted):
        await gateway.read(request_for("/v1/responses", model="chat", max_output_tokens=50), poor("truncate"))
    assert (await row_of(gateway))["outcome"] == "interrupted"
