"""Whatever backends and clients do: every attempt is closed once, and no place or connection is left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from gateway.domain.policy import Policy
from gateway.domain.routing.route import Route
from gateway.errors import BudgetExhausted, GatewayError
from tests.backends.conftest import CallerOf, backend_at
from tests.backends.strategies import route_of
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.requests import chat_request

POLICY = Policy(team="search", streams={"hold_for": "300ms"}, hedging={"enabled": True, "share": "100%"})
REFUSAL = "I'm sorry, but I can't help with that, for " + "many a good reason. " * 20


@pytest.fixture
async def middle() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


def step(chance: random.Random) -> Reply | Fail:
    text = chance.choice(("7", "8", "The answer is 7.", REFUSAL, "", "again and again " * 200, "a b c d e f g " * 3))
    if chance.random() < 0.15:
        return Fail(chance.choice((400, 401, 429, 500, 503)), delay_s=chance.random() * 0.02)
    broken = chance.random() < 0.15
    return Reply(
        text=text,
        drip_s=chance.choice((0, 0.001, 0.005)),
        delay_s=chance.choice((0, 0, 0.02, 0.2)),
        prefill_s=chance.choice((0, 0, 0.05)),
        logprob=chance.choice((-0.01, -2.0)),
        cut=chance.choice(("fin", "rst")) if broken else "",
        after=chance.randrange(12),
        usage=chance.choice(("true", "absent")),
    )


def route(caller: Caller, chance: random.Random) -> Route:
    first, second, third = caller.fleet.backends
    match chance.randrange(3):
        case 0:
            return route_of(first, second, third, at_once=chance.choice((1, 2, 3)))
        case 1:
            return Route((first, second), "test", escalate_to=third, escalate_below=0.6)
        case _:
            return Route((first, second, third), "test")


async def one(caller: Caller, chance: random.Random) -> str:
    """Ask, and read or leave; what became of it."""
    spends = chance.random() < 0.1
    if spends:
        caller.hold.covers, caller.hold.spent = 6.0, BudgetExhausted("It is spent.")
    request, within_s = chat_request(stream=chance.random() < 0.6), chance.choice((0.05, 0.4, 5.0))
    asking = asyncio.get_running_loop().create_task(caller.call(request, route(caller, chance), within_s=within_s))
    if chance.random() < 0.3:
        await asyncio.sleep(chance.random() * 0.1)
        asking.cancel()
    try:
        answer = await asking
    except GatewayError:
        assert caller.books.still_open == []
        return "refused"
    except asyncio.CancelledError:
        assert caller.books.still_open == []
        return "left"
    attempt = answer.attempt
    assert attempt is not None
    assert caller.books.still_open == [attempt.id]
    try:
        heard = await read(answer)
        assert heard
    except GatewayError:
        return "broken"
    finally:
        attempt.outcome = "ok" if answer.complete else "interrupted"
        caller.books.close(attempt, caller.record)
        await answer.aclose()
    return "answered"


@pytest.mark.parametrize("seed", range(4))
async def test_every_attempt_is_closed_once_and_nothing_is_left(
    seed: int, small: Provider, middle: Provider, large: Provider, caller_of: CallerOf
) -> None:
    chance = random.Random(seed)
    fleet = caller_of(
        *(
            backend_at(provider, name, capabilities=["logprobs"], tier=tier, stall_timeout=1.0)
            for provider, name, tier in (
                (small, "small", "small"),
                (middle, "middle", "small"),
                (large, "large", "large"),
            )
        ),
        wait_s=1.0,
    ).fleet
    for provider in (small, middle, large):
        provider.script(*(step(chance) for _ in range(60)))
    ends = await asyncio.gather(*(one(Caller(fleet, policy=POLICY), random.Random(seed * 100 + n)) for n in range(40)))
    assert {"answered", "left"} <= set(ends)
    stats = fleet.stats()
    assert [stats[f"{name}.in_flight"] for name in ("small", "middle", "large")] == [0, 0, 0]
    for provider in (small, middle, large):
        await provider.settled()
