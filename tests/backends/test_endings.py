"""However calls end, in whatever mixture: each attempt is closed once, each place and connection is given back."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.domain.answer import Answer
from gateway.domain.routing.route import Route
from gateway.errors import GatewayError
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import Caller
from tests.fakes.provider import Fail, Provider, Raw, Reply
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request

STEPS = (
    Reply(),
    Reply(),
    Reply(tokens=30, drip_s=0.001),
    Reply(tokens=5, drip_s=0.001, cut="rst", after=2),
    Reply(tokens=5, drip_s=0.001, cut="fin", after=2),
    Reply(tokens=5, error_event="oh", after=2),
    Reply(delay_s=0.05),
    Reply(prefill_s=0.05),
    Reply(text="", logprob=-3.0),
    Reply(logprob=-3.0),
    Fail(500),
    Fail(429),
    Fail(429, retry_after="0.01"),
    Fail(400),
    Fail(503, cut="rst"),
    Fail(200, body="html"),
    Fail(200, body="empty"),
    Fail(200, body="truncated"),
    Raw((b"nonsense\r\n\r\n",)),
)


async def one(caller: Caller, route: Route, chance: random.Random) -> None:
    """A client: patient, in a hurry, gone in the middle, or gone before the beginning."""
    temper = chance.choice(("patient", "patient", "hurried", "leaves midway", "leaves early", "never reads"))
    request = chat_request(stream=chance.random() < 0.6)
    calling = asyncio.get_running_loop().create_task(
        caller.call(request, route, within_s=0.04 if temper == "hurried" else 5.0)
    )
    if temper == "leaves early":
        await asyncio.sleep(chance.random() * 0.03)
        calling.cancel()
    try:
        answer = await calling
    except (GatewayError, asyncio.CancelledError):
        assert caller.books.still_open == []
        return
    await relay(answer, temper)
    serving = answer.attempt
    assert serving is not None
    assert serving is caller.record.served_by
    assert caller.books.still_open == [serving.id]
    assert serving.outcome == ("ok" if answer.complete else "open")


async def relay(answer: Answer, temper: str) -> None:
    try:
        if temper != "never reads":
            async for _ in pieces_of(answer):
                if temper == "leaves midway":
                    break
    except GatewayError:
        assert not answer.complete
    finally:
        await answer.aclose()


@pytest.mark.parametrize("seed", range(4))
async def test_any_mixture_of_failures_and_clients_leaves_nothing_behind(
    small: Provider, large: Provider, caller_of: CallerOf, seed: int
) -> None:
    chance = random.Random(seed)
    pair = caller_of(
        backend_at(small, "small", concurrent=8, first_byte_timeout=0.04, capabilities=["logprobs"]),
        backend_at(large, "large", concurrent=8, first_byte_timeout=0.5),
        wait_s=0.5,
    )
    first, second = pair.fleet.backends
    route = Route((first, second), "test", escalate_to=second, escalate_below=0.5)
    small.script(*chance.choices(STEPS, k=150))
    large.script(*chance.choices(STEPS, k=60))
    callers = [Caller(pair.fleet) for _ in range(120)]
    await asyncio.gather(*(one(caller, route, chance) for caller in callers))
    for backend in pair.fleet.backends:
        assert pair.fleet.state(backend).in_flight == 0
    await small.settled()
    await large.settled()
    opened = [name for caller in callers for name in caller.books.opened]
    assert len(opened) == len(set(opened)) == pair.fleet.stats()["attempts"]
