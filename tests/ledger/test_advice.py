"""Which parts of the input's cost may be avoidable, as the ledger shows it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.ledger.reports.advice import MONTH_S, Finding, Overview, advise
from gateway.state.sql.database import Database
from tests.ledger.booked import DAY, JANUARY, book, row

PRICES = "input=3000000 output=15000000 cached_input=300000 cache_write_5m=3750000 cache_write_1h=6000000"


def call(session: str, seconds: float, read: int, written: int, **facts: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"input_tokens": 0, "output_tokens": 0, "model": "claude-opus-4-6", "prices": PRICES}
    usual |= {"session": session, "at": JANUARY + seconds, "cached_tokens": read, "cache_write_5m_tokens": written}
    return row(**(usual | {"cost_pico": read * 300_000 + written * 3_750_000} | facts))


def advised(database: Database, team: str | None = "search") -> tuple[list[Overview], list[Finding]]:
    with database.read() as connection:
        return advise(connection, 0.0, team)


def test_the_overview_has_the_shares_of_what_a_session_repeats(database: Database) -> None:
    book(database, call("s", 0, 0, 10_000), call("s", DAY, 6_000, 6_000), call("", 60, 0, 4_000))
    book(database, call("s", 90, 0, 4_000, team="chat"))
    (view,), _ = advised(database)
    assert (view.requests, view.input_tokens, view.read_tokens, view.repeated_tokens) == (3, 26_000, 6_000, 10_000)
    assert view.input_cost == 20_000 * 3_750_000 + 6_000 * 300_000
    assert view.repeated_cost == 6_000 * 300_000 + 4_000 * 3_750_000
    assert view.nameless_cost == 4_000 * 3_750_000
    assert view.per_month == pytest.approx(MONTH_S / DAY)
    assert sorted(one.team for one in advised(database, None)[0]) == ["chat", "search"]


def test_misses_are_summed_by_cause_and_for_a_month(database: Database) -> None:
    book(database, call("s", 0, 0, 20_000), call("s", 10, 0, 21_000), call("s", 2 * DAY, 0, 21_000))
    _, found = advised(database)
    misses = {one.subject: one for one in found if one.kind == "cache miss"}
    assert misses["beginning changed"].month_pico == pytest.approx(15 * 20_000 * 3_450_000)
    assert misses["expired"].month_pico == pytest.approx(15 * 21_000 * 3_450_000)
    assert "context doctor" in misses["beginning changed"].text


def test_a_beginning_that_only_some_sessions_read_is_found(database: Database) -> None:
    """Three sessions read 5,000 tokens at once; the fourth, ten seconds later, does not, and the fifth is too late."""
    for number in range(3):
        book(database, call(f"s{number}", 10 * number, 5_000, 9_000))
    book(database, call("s3", 40, 0, 14_000), call("s4", DAY, 0, 14_000))
    (found,) = [one for one in advised(database)[1] if one.kind == "recurring beginning"]
    assert found.requests == 1
    assert found.month_pico == pytest.approx(30 * 5_000 * 3_450_000)


def test_rows_that_cost_nothing_or_failed_are_left_out(database: Database) -> None:
    book(database, call("s", 0, 0, 9_000, kind="shadow"), call("s", 1, 0, 9_000, outcome="failed"))
    book(database, call("s", 2, 0, 9_000, simulated=True), call("s", 3, 0, 9_000, prices="", cost_pico=None))
    (view,), found = advised(database)
    assert (view.requests, view.unpriced, view.input_cost, view.token_pico) == (1, 1, 0, 0.0)
    assert found == []
