"""A request belongs to the windows of budgets in which it began, however long it waits, is tried again, or answers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from gateway.admission.budgets import Budgets
from gateway.alerts.detect import measure
from gateway.domain.money.usage import Usage
from gateway.domain.money.windows import window_bounds
from gateway.domain.policy import Policy
from gateway.domain.protocols import BudgetChecker
from gateway.domain.record import Record, new_request_id
from gateway.domain.tenant import Key, Tenant
from gateway.errors import BudgetExhausted
from gateway.ledger.spent import Spending
from gateway.ledger.store.archive import Archive
from gateway.ledger.store.writer import Writer
from gateway.state.leases.leases import Leases
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, open_gateway, record_of
from tests.fakes.provider import Reply
from tests.ledger.samples import LARGE, OwnPrices, journal
from tests.support.requests import small_request

MIDNIGHT = 1_767_225_600.0
HOUR = 3600.0
NANO = 1000
BUDGETS = [
    {"limit_usd": "100", "window": "hour"},
    {"limit_usd": "100", "window": "day"},
    {"limit_usd": "100", "window": "hour", "per": "key"},
    {"limit_usd": "100", "window": "hour", "per": "end_user"},
    {"limit_tokens": 10**9, "window": "day"},
]
WHO = Tenant(Key("key_1", "search"), Policy(team="search", budget=BUDGETS))


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def counting(state: State, database: Database, folder: Path, clock: Clock) -> AsyncIterator[Budgets]:
    spending = Spending(folder / "journal", database)
    budgets = Budgets(state, OwnPrices(), spending, leases=Leases(state, period_s=0.05), clock=clock)
    await budgets.open()
    try:
        yield budgets
    finally:
        await budgets.aclose()


async def settled(state: State) -> dict[str, int]:
    """What every counter says, by its name: level, unit, window and when that began."""
    found = {}
    for key in await state.call("KEYS", state.key("lease", "budget", "*", tag="*")):
        found[key.decode().partition("budget:")[2]] = int(await state.call("HGET", key, "s"))
    return found


async def reported(state: State, expected: Mapping[float, int]) -> None:
    """Wait until the hours' counters, which are the team's, the key's and the end user's, say so many pico-dollars."""
    wanted = {(int(began), level): pico // NANO for began, pico in expected.items() for level in ("team", "key", "end")}
    found: dict[tuple[int, str], int] = {}
    try:
        async with asyncio.timeout(30):
            while found != wanted:
                hourly = {name: units for name, units in (await settled(state)).items() if ":hour:" in name}
                found = {
                    (int(name.rpartition(":")[2]), name.partition(":")[0].partition("_")[0]): each
                    for name, each in hourly.items()
                }
                await asyncio.sleep(0.02)
    except TimeoutError:
        assert found == wanted


@pytest.mark.parametrize("seed", range(4))
async def test_held_booked_and_rebuilt_windows_are_the_one_in_which_each_request_began(
    state: State, database: Database, tmp_path: Path, seed: int
) -> None:
    """Requests around a midnight wait before they are held, between their attempts, and for their answers."""
    random = Random(seed)
    clock = Clock(MIDNIGHT - 100)
    folder = tmp_path
    books = journal(folder / "journal", clock=_Time(clock))
    await books.start()
    expected: Counter[float] = Counter()
    async with counting(state, database, folder, clock) as budgets:

        async def request(number: int) -> None:
            record = Record(new_request_id(), WHO, "auto", "openai_chat", False, started_at=MIDNIGHT - 100 + number)
            record.end_user = "eu_1"
            began = window_bounds("hour", "UTC", record.started_at)[0]
            for pause in range(random.choice((1, 3))):  # before it is held
                await asyncio.sleep(0)
                clock.now = max(clock.now, record.started_at + pause * random.choice((0, 90, HOUR)))
            hold = budgets.hold(WHO, record)
            for last in random.choice(((True,), (False, True))):
                await hold.extend(LARGE, 10)
                clock.now += random.choice((0.0, 2.0))
                attempt = record.attempt(LARGE)
                attempt.started_at, attempt.input_tokens = clock.now, 10
                books.open(attempt, record)
                await asyncio.sleep(0)
                attempt.outcome, attempt.usage = ("ok" if last else "failed"), Usage(10, output_tokens=20)
                books.close(attempt, record)
            cost = sum(attempt.cost_pico or 0 for attempt in record.attempts)
            hold.settle(cost)
            hold.release()
            expected[began] += cost

        for block in range(0, 200, 20):  # some at the same time, some after the clock has moved on
            await asyncio.gather(*(request(number) for number in range(block, block + 20)))
        assert len(expected) >= 2
        await reported(state, expected)
    counted = await settled(state)
    for began, cost in expected.items():
        spent = await Spending(folder / "journal", database).spent(BudgetChecker(team="search"), began, began + HOUR)
        assert spent.pico == cost
    await books.aclose()
    writer = Writer(folder / "journal", database)
    await writer.drain_once()
    await writer.aclose()
    for began, cost in expected.items():
        window = (began, began + HOUR)
        of_alerts = partial(measure.used, team="search", policy=WHO.policy, budget=WHO.policy.budget[0], window=window)
        assert await database.run(of_alerts, writes=False) == cost
    for key in await state.call("KEYS", state.key("lease", "budget", "*", tag="*")):
        await state.call("DEL", key)
    async with counting(state, database, folder, clock) as budgets:
        for began in expected:  # long after some of the windows ended
            record = Record("req_1", WHO, "auto", "openai_chat", False, started_at=began)
            record.end_user = "eu_1"
            hold = budgets.hold(WHO, record)
            await hold.extend(LARGE, 10)
            hold.release()
    assert await settled(state) == counted


class _Time:
    """The clock of a journal."""

    def __init__(self, clock: Clock) -> None:
        self.time = clock
        self.monotonic = clock


async def test_a_request_that_waited_over_the_end_of_its_hour_is_held_and_refused_by_that_hours_budget(
    state: State, database: Database, tmp_path: Path
) -> None:
    """It began five seconds before the hour did that is now: whoever waits in a queue has done so."""
    hour = window_bounds("hour", "UTC", time.time())
    began = hour[0] - 5
    strict = Tenant(
        Key("key_1", "search"),
        Policy(team="search", budget={"limit_usd": "0.0014", "window": "hour", "on_exhausted": "refuse"}),
    )
    async with open_gateway(state, database, tmp_path) as gateway:
        gateway.provider.script(Reply(tokens=60), Reply(tokens=60), Reply(tokens=5))
        await serve(gateway, strict, began)
        await asyncio.sleep(0.2)
        await serve(gateway, strict, began)
        with pytest.raises(BudgetExhausted):
            await serve(gateway, strict, began)
        await serve(gateway, strict, hour[0] + 0.001)  # of the new hour nothing was spent
        rows = await gateway.rows()
        assert {row["at"] for row in rows} == {began, hour[0] + 0.001}
        told = await Archive(database).find(rows[0]["request_id"], "search")
    assert told is not None
    assert told["duration_ms"] >= 5000


async def serve(gateway: InProcessGateway, who: Tenant, began: float) -> None:
    request = small_request(new_request_id(), max_tokens=64)  # nothing that the cache knows
    record = record_of(request, who)
    record.started_at = began
    async with await gateway.pipeline.serve(request, who, record, asyncio.get_running_loop().time() + 30) as reply:
        reply.whole()
