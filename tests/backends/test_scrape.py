"""What a look at a server brings: its load, and whether it is there at all. One test has the real local model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.backends.fleet import Fleet
from gateway.backends.load.scrape import CAPACITY_S, MOST_BYTES, QUIET_S, STALE_S, Scrape, watched
from gateway.backends.resilience.drain import USUAL_S, BackendDrains
from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.routing.load import Load
from tests.fakes.caller import Caller, read
from tests.fakes.llama import llama
from tests.fakes.model_server import ModelServer
from tests.support.requests import chat_request
from tests.support.waiting import until

MACHINE = PriceEntry(machine_hour_usd=Decimal(2))


def page(running: float, waiting: float = 0, kv: float | None = None, written: float | None = None) -> tuple[int, str]:
    lines = [f"vllm:num_requests_running {running}", f"vllm:num_requests_waiting {waiting}"]
    lines += [] if kv is None else [f"vllm:kv_cache_usage_perc {kv}"]
    lines += [] if written is None else [f"vllm:generation_tokens_total {written}"]
    return 200, "\n".join(lines) + "\n"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def drains(clock: Clock) -> BackendDrains:
    return BackendDrains(clock=clock)


def backend(server: ModelServer, **changes: Any) -> Backend:
    known: dict[str, Any] = {"kind": "openai", "base_url": server.url, "model": "m", "tier": "small", "price": MACHINE}
    return Backend(name="gpu", **{**known, **changes})


@pytest.fixture
async def scrape(server: ModelServer, drains: BackendDrains, clock: Clock) -> AsyncIterator[Scrape]:
    made = Scrape(backend(server, api_key=SecretStr("k")), drains, monotonic=clock)
    yield made
    await made.aclose()


async def test_only_the_servers_own_metrics_are_asked_for_with_its_key(server: ModelServer, scrape: Scrape) -> None:
    server.pages["/metrics"] = page(3, 0)
    await scrape.look(0)
    assert server.asked == [("/metrics", "Bearer k")]
    assert scrape.load(0) == Load(3, 0)


async def test_a_redirect_leads_nowhere(server: ModelServer, scrape: Scrape) -> None:
    server.pages["/metrics"] = (302, f"{server.url}/elsewhere")
    await scrape.look(0)
    assert [path for path, _ in server.asked] == ["/metrics"]
    assert scrape.load(0) is None


async def test_calls_since_the_look_are_counted_in(server: ModelServer, scrape: Scrape) -> None:
    server.pages["/metrics"] = page(4, 1)  # so it works on four at a time, if that is still so a look later
    await scrape.look(2)
    assert scrape.load(2) == Load(4, 1)
    await scrape.look(2)
    assert scrape.load(2) == Load(4, 1, 4)
    assert scrape.load(5) == Load(4, 4, 4)
    assert scrape.load(0) == Load(3, 0, 4)
    server.pages["/metrics"] = page(6, 0)  # more than was believed
    await scrape.look(0)
    assert scrape.load(0) == Load(6, 0, 6)


async def test_what_it_can_take_is_asked_again_when_nobody_waits(
    server: ModelServer, scrape: Scrape, clock: Clock
) -> None:
    server.pages["/metrics"] = page(4, 1)
    for _ in range(2):
        await scrape.look(0)
    server.pages["/metrics"] = page(3)
    clock.now += CAPACITY_S - 1
    await scrape.look(0)
    assert scrape.load(0) == Load(3, 0, 4)
    clock.now += 2
    await scrape.look(0)
    assert scrape.load(0) == Load(3)


async def test_slots_that_the_operator_counted_are_believed(
    server: ModelServer, drains: BackendDrains, clock: Clock
) -> None:
    scrape = Scrape(backend(server, slots=8), drains, monotonic=clock)
    server.pages["/metrics"] = page(4, 1)
    for _ in range(2):
        await scrape.look(0)
    assert scrape.load(0) == Load(4, 1, 8)  # as is the server, that something else keeps them waiting
    assert scrape.load(7) == Load(8, 4, 8)
    await scrape.aclose()


async def test_a_server_that_loads_its_model_gets_nothing(
    server: ModelServer, scrape: Scrape, drains: BackendDrains
) -> None:
    server.pages["/metrics"] = (503, "Loading model")
    for _ in range(2):
        await scrape.look(0)
    assert drains.reason("gpu") == "drained: its server is not there"


async def test_memory_in_use_tells_how_many_would_fit(server: ModelServer, scrape: Scrape) -> None:
    server.pages["/metrics"] = page(10, 0, kv=0.25)
    await scrape.look(0)
    assert scrape.load(0) == Load(10, 0, 40, 0.25)


async def test_what_was_read_long_ago_is_forgotten(server: ModelServer, scrape: Scrape, clock: Clock) -> None:
    server.pages["/metrics"] = page(1)
    await scrape.look(0)
    clock.now += STALE_S + 1
    assert scrape.load(0) is None


async def test_tokens_a_second_come_from_what_was_written_since(
    server: ModelServer, scrape: Scrape, clock: Clock
) -> None:
    for written, waiting in ((1000, 1), (3000, 1), (3000, 1), (50, 1)):  # the last one: started again
        server.pages["/metrics"] = page(4, waiting, written=written)
        await scrape.look(0)
        clock.now += 2
    load = scrape.load(0)
    assert load is not None
    assert load.tokens_per_second == load.full_tokens_per_second == 1000


@pytest.mark.parametrize("status", [404, 501, 200, 500])
async def test_a_server_that_does_not_tell_is_well(
    server: ModelServer, scrape: Scrape, drains: BackendDrains, status: int
) -> None:
    server.pages["/metrics"] = (status, "nothing to see")
    for _ in range(3):
        await scrape.look(0)
    assert scrape.load(0) is None
    assert drains.reason("gpu") == ""


async def test_an_endless_page_is_left(server: ModelServer, scrape: Scrape) -> None:
    server.pages["/metrics"] = (200, "x" * (MOST_BYTES + 1))
    await scrape.look(0)
    assert scrape.load(0) is None


async def test_a_server_that_is_gone_gets_nothing_until_it_is_back(
    server: ModelServer, scrape: Scrape, drains: BackendDrains
) -> None:
    server.pages["/metrics"] = page(1)
    await scrape.look(0)
    await server.refuse()
    await scrape.look(0)
    assert drains.reason("gpu") == ""  # once may be chance
    await scrape.look(0)
    assert drains.reason("gpu") == "drained: its server is not there"
    await server.listen()
    await scrape.look(0)
    assert drains.reason("gpu") == ""
    assert scrape.load(0) == Load(1)


async def test_a_spot_machines_notice_drains_it_for_everybody(
    server: ModelServer, drains: BackendDrains, clock: Clock
) -> None:
    scrape = Scrape(backend(server, spot=True, spot_notice="/spot/instance-action"), drains, monotonic=clock)
    server.pages["/metrics"] = page(1)
    await scrape.look(0)
    assert drains.reason("gpu") == ""
    server.pages["/spot/instance-action"] = (200, '{"action": "terminate"}')
    await scrape.look(0)
    assert drains.reason("gpu") == "drained: its machine will end"
    clock.now += USUAL_S + 1
    await scrape.look(0)
    assert drains.reason("gpu") == "drained: its machine will end"  # it still says so
    server.pages["/spot/instance-action"] = (404, "")
    await scrape.look(0)
    assert drains.reason("gpu") == ""
    await drains.drain("gpu", 60, "by hand")
    await scrape.look(0)
    assert drains.reason("gpu") == "drained: by hand"
    await scrape.aclose()


async def test_a_notice_is_looked_for_without_metrics_too(server: ModelServer, drains: BackendDrains) -> None:
    silent = backend(server, spot_notice="/spot", metrics=False)
    scrape = Scrape(silent, drains)
    server.pages["/spot"] = (200, "")
    assert watched(silent)
    await scrape.look(0)
    assert [path for path, _ in server.asked] == ["/spot"]
    assert drains.reason("gpu") == "drained: its machine will end"
    await scrape.aclose()


async def test_nobody_looks_while_nobody_wants_to_know(
    server: ModelServer, drains: BackendDrains, clock: Clock
) -> None:
    scrape = Scrape(backend(server), drains, monotonic=clock, every_s=0.001)
    server.pages["/metrics"] = page(1)
    task = asyncio.create_task(scrape.run(lambda: 0))
    await asyncio.sleep(0.05)
    assert server.asked == []
    scrape.load(0)
    await until(lambda: len(server.asked) >= 3)
    clock.now += QUIET_S + 1
    await asyncio.sleep(0.05)
    before = len(server.asked)
    await asyncio.sleep(0.05)
    assert len(server.asked) == before
    task.cancel()
    await scrape.aclose()


@pytest.mark.parametrize(
    ("changes", "yes"),
    [
        ({}, True),
        ({"price": None}, False),
        ({"price": None, "kind": "local"}, True),
        ({"price": None, "metrics": True}, True),
        ({"metrics": False}, False),
        ({"price": None, "kind": "simulated", "base_url": "", "metrics": True}, False),
    ],
)
def test_servers_of_ones_own_are_watched(changes: dict[str, Any], yes: bool) -> None:
    assert watched(backend(ModelServer(), **changes)) is yes


# -- the real one ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Iterator[int]:
    with llama(slots=2, window=512) as port:
        yield port


@pytest.mark.heavy
@pytest.mark.timeout(300)
async def test_the_real_local_model_tells_how_busy_it_is(model: int) -> None:
    local = Backend(name="local", kind="local", base_url=f"http://127.0.0.1:{model}/v1", model="m", tier="small")
    fleet = Fleet([local])
    await fleet.open()
    callers = [Caller(fleet) for _ in range(4)]
    seen: list[Load] = []

    async def ask(caller: Caller) -> bytes:
        story = "Tell me a very long story about ships."
        asked = chat_request(story, max_tokens=100, ignore_eos=True)  # for several looks
        return await read(await caller.call(asked, within_s=200))

    def look() -> bool:
        if (load := fleet.state(local).load) is not None:
            seen.append(load)
        return all(task.done() for task in asking)

    asking = [asyncio.create_task(ask(caller)) for caller in callers]
    try:
        await until(look, 200)
        answers = await asyncio.gather(*asking)
        assert (2, 2, 2) in {(load.running, load.waiting, load.capacity) for load in seen}
        assert max(load.tokens_per_second or 0 for load in seen) > 0
        assert all(answers)
        await until(lambda: (load := fleet.state(local).load) and (load.running, load.waiting) == (0, 0))
    finally:
        await fleet.aclose()
