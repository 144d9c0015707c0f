"""A machine's attempts and its idle rows add up to its hours, whatever comes late."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.ledger.reports.idle import GRACE_S, TEAM, Idle
from gateway.ledger.store.entries import entries, spent
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from tests.fakes.clock import StoppedClock
from tests.ledger.booked import HOUR, JANUARY, USD, book, row
from tests.ledger.samples import ledger_rows

AFTER = JANUARY + HOUR + GRACE_S


def machine(**billing: Any) -> Backend:
    price = PriceEntry(machine_hour_usd=Decimal("2.1"), **billing)
    return Backend(name="gpu", kind="openai", base_url="http://127.0.0.1:9/v1", model="qwen", price=price)


class IdleLedger:
    """What writes idle rows, the writer that drains them, and a clock."""

    def __init__(self, directory: Path, database: Database, backend: Backend) -> None:
        self.database, self.directory, self.backend = database, directory, backend
        self.clock = StoppedClock(JANUARY + 600)

    async def look(self, at: float) -> int:
        """A process that begins then, or goes on."""
        self.clock.now = at
        found = await Idle(self.directory, self.database, [self.backend], self.clock).write_once()
        writer = Writer(self.directory, self.database)
        await writer.drain_once()
        await writer.aclose()
        return found

    async def hour(self, number: int = 0) -> int:
        """Pico-dollars of all rows of the machine in that hour."""
        start = JANUARY + number * HOUR
        which = (entries.c.backend == "gpu", entries.c.at >= start, entries.c.at < start + HOUR)
        return await self.database.run(lambda connection: spent(connection, *which), writes=False)


@pytest.fixture
def idle_ledger(tmp_path: Path, any_database: Database) -> IdleLedger:
    return IdleLedger(tmp_path / "journal", any_database, machine())


async def test_attempts_and_idle_add_up_to_the_hour(idle_ledger: IdleLedger) -> None:
    await asyncio.to_thread(
        book, idle_ledger.database, row(backend="gpu", cost_pico=5), row(backend="else", cost_pico=7)
    )
    assert await idle_ledger.look(JANUARY + 600) == 0
    assert await idle_ledger.look(AFTER) == 1
    assert await idle_ledger.hour() == 2_100_000_000_000
    (idle,) = [one for one in await asyncio.to_thread(ledger_rows, idle_ledger.database) if one["kind"] == "idle"]
    assert (idle["team"], idle["backend"], idle["at"], idle["cost_pico"]) == (TEAM, "gpu", JANUARY, 2_099_999_999_995)
    assert idle["price_source"] == "gateway.yaml, 2.1 USD per machine hour, on_demand"


async def test_an_hour_is_booked_once_and_not_before_its_attempts_have_ended(idle_ledger: IdleLedger) -> None:
    await idle_ledger.look(JANUARY)
    assert await idle_ledger.look(AFTER - 1) == 0
    assert [await idle_ledger.look(AFTER), await idle_ledger.look(AFTER + 1)] == [1, 0]


async def test_what_is_drained_late_is_corrected(idle_ledger: IdleLedger) -> None:
    await idle_ledger.look(JANUARY)
    await idle_ledger.look(AFTER)
    await asyncio.to_thread(book, idle_ledger.database, row(backend="gpu", cost_pico=USD))
    assert await idle_ledger.look(AFTER + HOUR) == 2
    assert await idle_ledger.hour() == await idle_ledger.hour(1) == 2_100_000_000_000


async def test_attempts_that_were_dearer_than_the_machine_are_given_back(idle_ledger: IdleLedger) -> None:
    await asyncio.to_thread(book, idle_ledger.database, row(backend="gpu", cost_pico=5 * USD))
    await idle_ledger.look(JANUARY)
    await idle_ledger.look(AFTER)
    assert await idle_ledger.hour() == 2_100_000_000_000


@pytest.mark.parametrize(
    ("billing", "hours"), [("on_demand", [0, 3]), ("reserved", [0, 1, 2, 3]), ("spot", [3])], ids=str
)
async def test_which_hours_count_is_the_machines_billing(
    idle_ledger: IdleLedger, billing: str, hours: list[int]
) -> None:
    """The gateway ran in the first and the fourth hour, and only in the fourth was the machine there."""
    idle_ledger.backend = machine(billing=billing)
    failed = row(backend="gpu", outcome="failed", cost_pico=0)
    await asyncio.to_thread(book, idle_ledger.database, failed, row(backend="gpu", at=JANUARY + 3 * HOUR))
    for at in (JANUARY, JANUARY + 3 * HOUR, AFTER + 3 * HOUR):
        await idle_ledger.look(at)
    assert [number for number in range(4) if await idle_ledger.hour(number) == 2_100_000_000_000] == hours


async def test_two_hosts_with_one_machine_book_it_once(idle_ledger: IdleLedger, tmp_path: Path) -> None:
    other = IdleLedger(tmp_path / "other", idle_ledger.database, idle_ledger.backend)
    for at in (JANUARY, AFTER):
        await idle_ledger.look(at)
        await other.look(at)
    assert await idle_ledger.hour() == 2_100_000_000_000


async def test_a_machine_without_a_price_by_the_hour_is_none_of_it(tmp_path: Path, database: Database) -> None:
    plain = machine().model_copy(update={"price": PriceEntry(input=Decimal(1), output=Decimal(1))})
    assert await IdleLedger(tmp_path, database, plain).look(AFTER) == 0
    await Idle(tmp_path, database, [plain]).run()


async def test_a_machine_that_costs_only_while_it_answers_has_no_idle_rows(
    tmp_path: Path, any_database: Database
) -> None:
    ledger = IdleLedger(tmp_path / "journal", any_database, machine(billing="busy"))
    assert await ledger.look(JANUARY + 600) == await ledger.look(AFTER) == 0
