"""How long a request would wait, who is drained, and that workers tell each other."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from gateway.backends.fleet import Fleet
from gateway.backends.load.in_flight import GUESSED_S, wait_s
from gateway.backends.resilience.drain import USUAL_S, BackendDrains
from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.routing.load import Load
from gateway.errors import BackendOverloaded, GatewayError, StateUnavailable
from gateway.state.redis.connection import State
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.model_server import ModelServer
from tests.fakes.provider import Fail, Provider
from tests.support.requests import chat_request
from tests.support.waiting import until


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("load", "whole_s", "seconds"),
    [
        (Load(1, 0, 2), 10, 0),  # there is room
        (Load(40), 10, 0),  # nobody waits, and nobody knows of a limit
        (Load(2, 0, 2), 10, 5),  # the first of two to end takes 5 s on average
        (Load(2, 2, 2), 20, 15),  # of 20 s, ten were waited: three ends, 5 s each
        (Load(1, 1), None, GUESSED_S),
    ],
)
def test_a_wait_is_as_long_as_those_before_take(load: Load, whole_s: float | None, seconds: float) -> None:
    assert wait_s(load, whole_s) == pytest.approx(seconds)


async def test_places_that_the_operator_counted_tell_a_load_too(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of(backend_at(small, "small", concurrent=2), backend_at(small, "other"))
    counted, uncounted = caller.fleet.backends
    assert caller.fleet.state(counted).load == Load(0, 0, 2)
    assert caller.fleet.state(uncounted).load is None


async def test_a_server_that_is_only_ever_called_is_looked_at_too(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of(backend_at(small, "small", metrics=True))
    await caller.fleet.open()
    await caller.call(chat_request())
    await until(lambda: any(each.path == "/metrics" for each in small.exchanges))


async def test_a_503_that_names_a_time_drains_for_so_long(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of(backend_at(small, "small"))
    (backend,) = caller.fleet.backends
    small.script(Fail(503, retry_after="20"))
    with pytest.raises(GatewayError) as caught:
        await caller.call(chat_request())
    assert caught.value.status == BackendOverloaded.status
    assert caller.fleet.state(backend).reason == "drained: it said 503"
    caller.fleet.drains.over("small", "something else")
    assert not caller.fleet.state(backend).available
    caller.fleet.drains.over("small", "it said 503")
    assert caller.fleet.state(backend).available


@pytest.mark.parametrize("said", [{}, {"retry_after": "1"}])
async def test_any_other_503_is_only_a_failure(small: Provider, caller_of: CallerOf, said: dict[str, Any]) -> None:
    caller = caller_of(backend_at(small, "small"))
    small.script(Fail(503, **said), Fail(503, **said))
    with pytest.raises(GatewayError):
        await caller.call(chat_request())
    assert caller.fleet.state(caller.fleet.backends[0]).available


async def test_a_drain_ends_by_itself() -> None:
    clock = Clock()
    drains = BackendDrains(clock=clock)
    await drains.drain("gpu", 10, "new weights")
    assert drains.reason("gpu") == "drained: new weights"
    clock.now += 11
    assert drains.reason("gpu") == ""
    assert await drains.undrain("gpu") is False


async def test_workers_hear_of_each_others_drains(state: State) -> None:
    one, other = BackendDrains(state), BackendDrains(state)
    await other.open()
    fleet = Fleet([], drains=one)
    await fleet.open()
    try:
        await one.drain("gpu", USUAL_S, "spot notice")
        await until(lambda: other.reason("gpu") == "drained: spot notice")
        assert await other.undrain("gpu") is True
        await until(lambda: one.reason("gpu") == "")
    finally:
        await fleet.aclose()
        await other.aclose()


async def test_what_others_left_in_the_state_is_no_trap(state: State) -> None:
    clock = Clock()
    drains = BackendDrains(state, clock=clock)
    await state.call(
        "HSET", state.key("drained"), "gone", b'[1.0, "long ago"]', "odd", b"{", "well", b'[2000.0, "now"]'
    )
    await drains.open()
    try:
        await until(lambda: drains.reason("well"))
        assert await state.call("HKEYS", state.key("drained")) == [b"well"]
    finally:
        await drains.aclose()


async def test_without_the_state_a_drain_is_this_workers_alone(tmp_path: Any) -> None:
    nowhere = State(f"unix://{tmp_path}/none.sock", timeout_s=0.05)
    drains = BackendDrains(nowhere)
    with pytest.raises(StateUnavailable):
        await drains.drain("gpu", 10, "by hand")
    assert drains.reason("gpu") == "drained: by hand"
    await asyncio.sleep(0)


async def test_figures_show_a_load_and_are_no_reason_to_ask_for_it() -> None:
    price = PriceEntry(machine_hour_usd=Decimal(2))
    async with ModelServer() as server:
        server.pages["/metrics"] = (200, "vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n")
        gpu = Backend(name="gpu", kind="openai", base_url=server.url, model="m", tier="small", price=price)
        fleet = Fleet([gpu])
        await fleet.open()
        try:
            fleet.stats()
            await asyncio.sleep(0.05)
            assert server.asked == []
            fleet.state(gpu)
            await until(lambda: fleet.state(gpu).load is not None)
            assert (fleet.stats()["gpu.server_running"], fleet.stats()["gpu.server_waiting"]) == (3, 0)
            await fleet.drains.drain("gpu", 60, "by hand")
            assert fleet.stats()["gpu.available"] == 0
        finally:
            await fleet.aclose()
