"""The ledger's side of the parent process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import select

from gateway.policy.load import Policies
from gateway.runtime.tasks import Tasks
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings, load_settings
from gateway.state.sql.database import Database
from gateway.state.sql.tables import alerts
from gateway.supervisor.ledger_service import LedgerService
from tests.ledger import samples
from tests.support.waiting import until

POLICY = "team: default\nbudget: {limit_usd: 0.0001, window: day, timezone: UTC, alerts: [50%]}\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "default.yaml").write_text(POLICY)
    (tmp_path / "gateway.yaml").write_text("{}")
    return load_settings(tmp_path / "gateway.yaml", tmp_path, [tmp_path / "rules"])


@pytest.fixture
def books(settings: Settings) -> LedgerService:
    return LedgerService(settings, Policies(settings.policies, settings.config.ceilings))


async def spend(settings: Settings, team: str) -> None:
    journal = samples.journal(settings.paths.journal)
    await journal.start()
    samples.spend(journal, team)
    await journal.aclose()


def look(settings: Settings) -> tuple[int, list[str]]:
    """How many rows the ledger has, and which teams were alerted."""
    database = Database(settings.database_url)
    try:
        with database.read() as connection:
            teams = list(connection.execute(select(alerts.c.team)).scalars())
        return len(samples.ledger_rows(database)), teams
    finally:
        database.close()


async def test_spend_is_drained_and_a_team_without_a_file_is_alerted_by_the_default_policy(
    settings: Settings, books: LedgerService
) -> None:
    await books.open()
    tasks = Tasks()
    tasks.spawn(books.alert(), "alerts")
    tasks.spawn(books.run(), "ledger")
    async with asyncio.timeout(30):
        while True:
            await spend(settings, "newcomers")
            rows, teams = await asyncio.to_thread(look, settings)
            if rows and teams == ["newcomers"]:
                break
            await asyncio.sleep(0.1)
    await tasks.aclose()
    await books.aclose()
    assert not books.abandoned


async def test_what_is_spent_before_the_alerts_are_loaded_is_alerted_too(
    settings: Settings, books: LedgerService
) -> None:
    await books.open()
    await spend(settings, "newcomers")
    tasks = Tasks()
    tasks.spawn(books.run(), "ledger")
    await until(lambda: drained(settings))
    tasks.spawn(books.alert(), "alerts")
    await until(lambda: alerted(settings, "newcomers"))
    await tasks.aclose()
    await books.aclose()


async def drained(settings: Settings) -> bool:
    rows, teams = await asyncio.to_thread(look, settings)
    assert teams == []
    return rows > 0


async def alerted(settings: Settings, team: str) -> bool:
    return (await asyncio.to_thread(look, settings))[1] == [team]


async def test_the_last_entries_are_drained_at_the_end(settings: Settings, books: LedgerService) -> None:
    await books.open()
    await spend(settings, "late")
    await books.aclose()
    assert (await asyncio.to_thread(look, settings))[0] == 1


def test_a_database_of_an_unknown_kind_is_a_mistake_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("ledger: {database_url: 'oracle://x'}")
    settings = load_settings(tmp_path / "gateway.yaml", tmp_path)
    with pytest.raises(ConfigError, match=r"ledger\.database_url"):
        LedgerService(settings, Policies((), settings.config.ceilings))
