"""The purse that comparing is paid from: no cap is exceeded, by however many at once, on either database."""

from __future__ import annotations

import asyncio
from decimal import Decimal

from gateway.learning.spend_cap import SpendCap, spent
from gateway.settings.gateway import TrialsSettings
from gateway.state.sql.database import Database
from tests.fakes.clock import StoppedClock
from tests.learning.conftest import shadowed_tenant

USD = 10**12


def spend_cap(database: Database, clock: StoppedClock, all_usd: int = 100) -> SpendCap:
    return SpendCap(database, TrialsSettings(cap_usd=Decimal(all_usd)), clock=clock)


async def sums(database: Database) -> dict[str, tuple[int, int, int]]:
    return {one.team: (one.held_pico, one.spent_pico, one.calls) for one in await database.run(spent)}


async def test_many_at_once_never_hold_more_than_the_cap(any_database: Database) -> None:
    clock, who = StoppedClock(), shadowed_tenant(trials={"cap_usd": 5})
    workers = [spend_cap(any_database, clock) for _ in range(3)]
    held = await asyncio.gather(*(workers[number % 3].hold(who, 2 * USD) for number in range(12)))
    assert sum(one is not None for one in held) == 2
    assert await sums(any_database) == {"": (4 * USD, 0, 2), "search": (4 * USD, 0, 2)}


async def test_all_teams_share_the_operators_cap(any_database: Database) -> None:
    clock = StoppedClock()
    cap = spend_cap(any_database, clock, all_usd=3)
    assert await cap.hold(shadowed_tenant("one"), 2 * USD)
    assert await cap.hold(shadowed_tenant("two"), 2 * USD) is None
    assert await cap.hold(shadowed_tenant("two"), 1 * USD)


async def test_what_was_held_and_not_spent_may_be_held_again_and_each_window_begins_anew(
    any_database: Database,
) -> None:
    clock, who = StoppedClock(), shadowed_tenant(trials={"cap_usd": 5})
    cap = spend_cap(any_database, clock)
    period = await cap.hold(who, 5 * USD)
    assert period is not None
    assert await cap.hold(who, 1) is None
    await cap.settle(who, period, 5 * USD, 1 * USD)
    assert await sums(any_database) == {"": (0, 1 * USD, 1), "search": (0, 1 * USD, 1)}
    assert cap.stats()["spent_usd"] == 1
    assert await cap.hold(who, 4 * USD) == period
    clock.pass_(86400)
    later = await cap.hold(who, 5 * USD)
    assert later not in (None, period)
