"""Groups add up to the total, unknown prices are counted and not summed, simulated usage is in no total."""

from __future__ import annotations

import asyncio
import csv
import io
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from rich.console import Console

from gateway.cli.money.usage_table import as_table
from gateway.domain.money.usage import Usage
from gateway.domain.routing.route import Decision, Route
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.dimensions import CACHE, COLUMNS, dimensions
from gateway.ledger.reports.formats import as_csv, as_object, dollars
from gateway.ledger.reports.report import Report, usage
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from tests.ledger.booked import book, roll_up, row
from tests.ledger.samples import COST, LARGE, SIMULATED, UNPRICED, USAGE, begin, finish, journal, record, spend

DAY = 86400.0
JANUARY = 1_767_225_600.0  # 2026-01-01 UTC


@pytest.fixture(scope="module")
def catalogue() -> PriceBook:
    return PriceBook.load()


@pytest_asyncio.fixture
async def booked(any_database: Database, tmp_path: Path) -> Database:
    """Two teams over two days, a failure with a retry, a cache hit, an unknown price, simulated usage."""
    books = journal(tmp_path / "journal")
    await books.start()
    spend(books, "search", at=JANUARY, tags={"app": "shop", "env": "live"})
    spend(books, "search", at=JANUARY + DAY, tags={"app": "shop"})
    spend(books, "chat", at=JANUARY + DAY - 0.001)
    spend(books, "chat", backend=UNPRICED, at=JANUARY + DAY)
    spend(books, "chat", backend=SIMULATED, at=JANUARY)
    entry = record("search")
    failed, served = begin(entry, at=JANUARY), begin(entry, at=JANUARY)
    for attempt, how, tokens in ((failed, "failed", None), (served, "ok", Usage(1, output_tokens=1, estimated=True))):
        books.open(attempt, entry)
        books.close(finish(attempt, tokens, how), entry)
    hit = record("chat")
    hit.cache, hit.started_at = "exact", JANUARY
    books.cached(hit, USAGE, COST)
    await books.aclose()
    writer = Writer(tmp_path / "journal", any_database)
    await writer.drain_once()
    await writer.aclose()
    return any_database


def by_group(report: Report) -> dict[tuple[str, ...], Any]:
    return {line.group: line for line in report.rows}


async def test_teams_add_up_to_the_total(booked: Database) -> None:
    report = await usage(booked, by="team")
    groups = by_group(report)
    assert set(groups) == {("chat",), ("search",)}
    assert groups["search",].cost_pico == 2 * COST + 3 * 10**6
    assert groups["chat",].cost_pico == COST
    assert report.total.cost_pico == sum(line.cost_pico for line in report.rows)
    assert report.total.requests == 6  # four priced or not, one with a retry, one from the cache
    assert report.total.attempts == 6
    assert (report.total.failed, report.total.estimated, report.total.unpriced) == (1, 1, 1)
    assert (report.total.cache_answers, report.total.cache_tokens, report.total.saved_pico) == (1, 35, COST)
    assert (report.total.input_tokens, report.total.cached_tokens, report.total.output_tokens) == (41, 20, 81)


async def test_models_backends_keys_and_the_cache_have_their_lines(booked: Database) -> None:
    report = await usage(booked, by="model")
    assert {group for (group,) in by_group(report)} == {"big", "mystery", CACHE}
    report = await usage(booked, by="backend")
    assert {group for (group,) in by_group(report)} == {"large", "mystery", CACHE}
    report = await usage(booked, by="key")
    assert {group for (group,) in by_group(report)} == {"key-chat", "key-search"}


async def test_days_are_days_of_utc(booked: Database) -> None:
    groups = by_group(await usage(booked, by="day"))
    assert set(groups) == {("2026-01-01",), ("2026-01-02",)}
    assert groups["2026-01-02",].requests == 2


async def test_a_tag_has_a_line_of_its_own_however_it_is_combined(booked: Database) -> None:
    report = await usage(booked, by="tag")
    groups = by_group(report)
    assert set(groups) == {("",), ("app=shop",), ("env=live",)}
    assert groups["app=shop",].cost_pico == 2 * COST
    assert groups["env=live",].cost_pico == COST
    assert report.total.requests == 6


async def test_several_dimensions_combine(booked: Database) -> None:
    groups = by_group(await usage(booked, by="team, day"))
    assert ("search", "2026-01-02") in groups
    assert len(groups) == 4


async def test_a_period_and_a_team_narrow_it_down(booked: Database) -> None:
    report = await usage(booked, team="search", since=JANUARY + DAY, until=JANUARY + 2 * DAY)
    assert report.total.requests == 1
    assert (await usage(booked, since=JANUARY, until=JANUARY + DAY)).total.requests == 4
    assert (await usage(booked, team="nobody")).total.requests == 0
    assert (await usage(booked, team="nobody")).rows == ()


async def test_simulated_usage_stands_apart_with_a_hypothetical_price(booked: Database, catalogue: PriceBook) -> None:
    report = await usage(booked, prices=catalogue)
    (line,) = report.simulated
    assert (line.model, line.requests, line.input_tokens, line.output_tokens) == ("pretend-large", 1, 15, 20)
    assert line.like == "openai/gpt-5"
    assert line.hypothetical_pico == 15 * 1_250_000 + 20 * 10_000_000
    assert all("pretend" not in "".join(line.group) for line in report.rows)


def test_only_known_dimensions_group() -> None:
    assert dimensions("team, model,team") == ("team", "model")
    for wrong in ("", "colour", "team,id"):
        with pytest.raises(ValueError, match="team, key, model"):
            dimensions(wrong)


async def test_json_has_exact_money_as_text(booked: Database, catalogue: PriceBook) -> None:
    report = await usage(booked, by="team", since=JANUARY, prices=catalogue)
    found = orjson.loads(orjson.dumps(as_object(report)))
    assert found["since"] == "2026-01-01T00:00:00+00:00"
    assert found["until"] is None
    assert found["by"] == ["team"]
    assert {row["team"]: row["cost_usd"] for row in found["rows"]} == {"chat": "0.0000505", "search": "0.000104"}
    assert Decimal(found["total"]["cost_usd"]) == Decimal(3 * COST + 3 * 10**6) / 10**12
    assert found["total"]["unpriced"] == 1
    assert found["simulated"][0]["hypothetical_usd"] == "0.00021875"


async def test_csv_adds_up_in_a_spreadsheet(booked: Database) -> None:
    report = await usage(booked, by="team,model")
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert sum(Decimal(row["cost_usd"]) for row in rows) == Decimal(report.total.cost_pico) / 10**12
    assert {row["team"] for row in rows} == {"chat", "search"}


async def test_a_spreadsheet_takes_no_name_for_a_formula(database: Database, tmp_path: Path) -> None:
    books = journal(tmp_path / "journal")
    await books.start()
    spend(books, backend=LARGE.model_copy(update={"model": "=cmd()"}))
    await books.aclose()
    writer = Writer(tmp_path / "journal", database)
    await writer.drain_once()
    await writer.aclose()
    assert "\n'=cmd()," in as_csv(await usage(database))


async def test_the_table_names_what_is_not_in_its_figures(booked: Database, catalogue: PriceBook) -> None:
    report = await usage(booked, by="team", prices=catalogue)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(as_table(report))
    text = console.export_text()
    assert "total" in text
    assert "0.0002" in text
    assert "unknown or incomplete price, so that these figures are too low: 1." in text
    assert "hypothetical, priced like openai/gpt-5: 0.000219 USD" in text


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (10**12, "1"),
        (1_500_000_000_000, "1.5"),
        (10**27 + 1, f"1{'0' * 15}.{'0' * 11}1"),
    ],
)
def test_dollars_are_exact(pico: int, text: str) -> None:
    assert dollars(pico) == text


@pytest.mark.parametrize("by", [*(name for name in COLUMNS if name != "tag"), "tag:app", "team,model,hour"])
async def test_whatever_it_is_grouped_by_the_groups_add_up_to_the_total(booked: Database, by: str) -> None:
    report = await usage(booked, by=by)
    assert report.rows
    for name in ("cost_pico", "saved_pico", "attempts", "input_tokens", "output_tokens", "cached_tokens", "unpriced"):
        assert sum(getattr(line, name) for line in report.rows) == getattr(report.total, name), name


async def test_one_tag_has_a_line_for_each_of_its_values(booked: Database) -> None:
    groups = by_group(await usage(booked, by="tag:app"))
    assert set(groups) == {("",), ("shop",)}
    assert groups["shop",].cost_pico == 2 * COST


async def test_hours_are_hours_of_utc(booked: Database) -> None:
    groups = by_group(await usage(booked, by="hour"))
    assert set(groups) == {("2026-01-01T00:00Z",), ("2026-01-01T23:00Z",), ("2026-01-02T00:00Z",)}


async def test_a_row_that_was_superseded_counts_no_more(any_database: Database) -> None:
    old = row(cost_pico=None, prices="")
    new = row(id=f"{old['id']}~1", request_id=old["request_id"], supersedes=old["id"])
    newer = row(id=f"{old['id']}~2", request_id=old["request_id"], supersedes=new["id"], cost_pico=7)
    await asyncio.to_thread(book, any_database, old, new, newer)
    total = (await usage(any_database)).total
    assert (total.requests, total.attempts, total.unpriced, total.cost_pico) == (1, 1, 0, 7)


async def test_sums_of_what_was_rolled_up_count_like_the_rows_they_stand_for(any_database: Database) -> None:
    await asyncio.to_thread(book, any_database, row())
    alike = {"requests": 3, "request_id": "req_stand_in"}
    roll = partial(roll_up, any_database)
    await asyncio.to_thread(roll, attempts=3, outcome="failed", cost_pico=0, output_tokens=0, **alike)
    await asyncio.to_thread(roll, attempts=3, cost_pico=300, **alike)
    await asyncio.to_thread(roll, attempts=2, requests=2, request_id="req_other", team="chat", cost_pico=11)
    total = (await usage(any_database)).total
    assert (total.requests, total.attempts, total.failed) == (6, 9, 3)
    assert total.cost_pico == 50_500_000 + 311
    groups = by_group(await usage(any_database, by="team"))
    assert (groups["search",].requests, groups["chat",].requests) == (4, 2)


async def test_idle_machine_time_is_cost_but_no_request(any_database: Database) -> None:
    idle = row(
        attempt=0, kind="idle", team="(machines)", cost_pico=-5, input_tokens=0, cached_tokens=0, output_tokens=0
    )
    await asyncio.to_thread(book, any_database, row(), idle)
    total = (await usage(any_database)).total
    assert (total.requests, total.attempts, total.cache_answers) == (1, 1, 0)
    assert (total.cost_pico, total.idle_pico) == (50_499_995, -5)
    assert as_object(await usage(any_database))["total"]["idle_usd"] == "-0.000000000005"


@pytest_asyncio.fixture
async def observed(any_database: Database, tmp_path: Path) -> Database:
    """Two answers that routing only looked on at, one of them unpriced as decided, and one that it chose."""
    books = journal(tmp_path / "journal")
    await books.start()
    for decided in (Decision(((LARGE, 0.25),), 0.96), Decision(((LARGE, 1.0), (UNPRICED, 0.1)), 0.5), None):
        entry = record("search")
        entry.route = Route((LARGE,), "observe mode", decided=decided)
        attempt = begin(entry, at=JANUARY)
        books.open(attempt, entry)
        books.close(finish(attempt, USAGE), entry)
    await books.aclose()
    writer = Writer(tmp_path / "journal", any_database)
    await writer.drain_once()
    await writer.aclose()
    return any_database


async def test_what_routing_would_have_saved_and_brought_is_told(observed: Database) -> None:
    total = (await usage(observed)).total
    assert (total.requests, total.decided, total.undecided_pico, total.decided_ppm) == (3, 1, COST, 960_000)
    assert total.decided_pico == COST // 4
    found = as_object(await usage(observed))["total"]
    assert Decimal(found["undecided_usd"]) == 4 * Decimal(found["decided_usd"])
    assert found["decided_adequacy"] == 0.96
    console = Console(width=400)
    with console.capture() as captured:
        console.print(as_table(await usage(observed)))
    assert "Routing did not choose for 1 answers" in captured.get()
    assert "(75%), at an expected adequacy of 0.960" in captured.get()


async def test_where_routing_looked_on_at_nothing_there_is_no_adequacy(booked: Database) -> None:
    report = await usage(booked)
    assert as_object(report)["total"]["decided_adequacy"] is None
    (row,) = [one for one in csv.DictReader(io.StringIO(as_csv(report))) if one["model"] == LARGE.model]
    assert row["decided_adequacy"] == ""
    assert row["decided"] == "0"


async def test_a_roll_up_keeps_what_routing_would_have_done(booked: Database) -> None:
    known = {"requests": 3, "attempts": 3, "at": JANUARY, "backend": "small", "cost_pico": 900}
    facts = {"decided": "tiny", "decided_pico": 300, "decided_ppm": 2_700_000}
    before = (await usage(booked)).total
    await asyncio.to_thread(partial(roll_up, booked, **known, **facts))
    total = (await usage(booked)).total
    assert before.decided == 0
    assert (total.decided, total.undecided_pico, total.decided_pico, total.decided_ppm) == (3, 900, 300, 2_700_000)
