"""What leaving out old outputs saved, from sessions that are held out and others."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from sqlalchemy import insert

from gateway.domain.holdout import is_held_out
from gateway.domain.policy import ContextPolicy
from gateway.ledger.reports.holdout import LEAST_REQUESTS, WINDOW_S, Holdout, compare, has_cuts, least_requests
from gateway.state.sql.database import Database
from gateway.state.sql.tables import feedback, ledger
from tests.ledger.booked import JANUARY, row

PRICES = "input=3000000 output=15000000 cached_input=300000 cache_write_5m=3750000 cache_write_1h=6000000"
REQUESTS = LEAST_REQUESTS + 1
SHARE = 0.5


def session(name: str, random: Random, *, dearer: float = 1.0, failed: int = 0, requests: int = REQUESTS) -> list[Any]:
    """A session that sends 1,000 tokens more with every request. `dearer`: factor of the cost if it is not held out."""
    factor = random.lognormvariate(0, 0.2) * (1.0 if is_held_out("search", name, SHARE) else dearer)
    rows = []
    for number in range(requests):
        facts: dict[str, Any] = {"input_tokens": 0, "cached_tokens": 20_000 + 1_000 * number, "prices": PRICES}
        facts |= {"cache_write_5m_tokens": 1_000, "model": "claude-opus-4-6", "at": JANUARY + number, "session": name}
        rows.append(row(**facts, cost_pico=int(factor * (facts["cached_tokens"] * 300_000 + 3_750_000_000))))
    for place, each in enumerate(rows):
        each |= {"outcome": "failed" if place < failed else "ok", "escalated": False}
    return rows


def book(database: Database, *rows: dict[str, Any]) -> None:
    """Insert many rows at once; all have the same columns."""
    with database.begin() as connection:
        connection.execute(insert(ledger), rows)


def names(count: int) -> list[str]:
    """As many names of each kind."""
    held: list[str] = []
    others: list[str] = []
    number = 0
    while min(len(held), len(others)) < count:
        name = f"s{number}"
        (held if is_held_out("search", name, SHARE) else others).append(name)
        number += 1
    return held[:count] + others[:count]


def compared(database: Database, since: float = JANUARY - WINDOW_S, team: str = "search") -> Holdout:
    with database.read() as connection:
        return compare(connection, team, SHARE, since)


def test_a_session_is_held_out_by_its_name_and_team() -> None:
    drawn = [is_held_out("search", f"s{number}", 0.02) for number in range(20_000)]
    assert 300 < sum(drawn) < 500
    assert drawn != [is_held_out("chat", f"s{number}", 0.02) for number in range(20_000)]
    assert not is_held_out("search", "", 1.0)
    assert not is_held_out("search", "s1", 0.0)
    assert is_held_out("search", "s1", 1.0)


@pytest.mark.parametrize(("dearer", "loses"), [(0.8, ()), (1.0, ()), (1.6, ("cost",))])
def test_the_saving_is_measured_with_an_interval(database: Database, dearer: float, loses: tuple[str, ...]) -> None:
    random = Random(3)
    book(database, *[one for name in names(30) for one in session(name, random, dearer=dearer)])
    found = compared(database)
    assert (found.held_sessions, found.cut_sessions) == (30, 30)
    cost = next(figure for figure in found.figures if figure.name == "cost")
    assert cost.low is not None
    assert cost.high is not None
    assert cost.change is not None
    assert cost.low < 1 - dearer < cost.high
    assert cost.low < cost.change < cost.high
    assert found.loses == loses


def test_what_else_is_worse_is_found(database: Database) -> None:
    random, found = Random(4), list[dict[str, Any]]()
    for name in names(30):
        cut = not is_held_out("search", name, SHARE)
        rows = session(name, random, failed=3 * cut, requests=REQUESTS + 30 * cut)
        rows[-1]["escalated"] = cut
        found += rows
        if cut:
            bad = {"request_id": rows[-1]["request_id"], "team": "search", "key_id": "k", "at": JANUARY, "score": 0.0}
            with database.begin() as connection:
                connection.execute(insert(feedback).values(**bad))
    book(database, *found)
    assert set(compared(database).loses) - {"cost"} == {"failed", "escalated", "bad", "requests"}


def test_too_few_sessions_decide_nothing(database: Database) -> None:
    random = Random(5)
    book(database, *[one for name in names(10) for one in session(name, random, dearer=5.0)])
    assert compared(database).loses == ()


def test_short_old_and_foreign_sessions_are_not_compared(database: Database) -> None:
    random = Random(6)
    held, other = names(1)
    book(database, *session(held, random), *session(other, random, requests=LEAST_REQUESTS - 1))
    book(database, *[one | {"team": "chat"} for one in session(other, random)])
    book(database, *[one | {"session": ""} for one in session(other, random)])
    book(database, *[one | {"kind": "shadow"} for one in session(other, random)])
    found = compared(database)
    assert (found.held_sessions, found.cut_sessions, found.figures) == (1, 0, ())
    assert compared(database, since=JANUARY + 100).held_sessions == 0


def test_the_twin_pays_for_what_was_left_out_and_reads_its_last_prompt(database: Database) -> None:
    """The twin of the sessions that are not held out has 9,000 tokens more to read; the paid costs are equal."""
    random = Random(7)
    held, other = names(1)
    paid = 7_000_000_000
    for name in (held, other):
        left_out = 0 if name == held else 9_000
        rows = [one | {"trimmed_tokens": left_out, "cost_pico": paid} for one in session(name, random)]
        book(database, *rows)
    cost = next(figure for figure in compared(database).figures if figure.name == "cost")

    def twin(more: int) -> int:
        first = (21_000 + more) * 3_750_000
        later = sum((20_000 + 1_000 * number + more) * 300_000 + 1_000 * 3_750_000 for number in range(1, REQUESTS))
        return first + later + REQUESTS * 20 * 15_000_000

    assert cost.held == pytest.approx(REQUESTS * paid / twin(0))
    assert cost.cut == pytest.approx(REQUESTS * paid / twin(9_000))


def test_a_team_without_cuts_is_seen(database: Database) -> None:
    book(database, row(session="s", trimmed_tokens=0), row(session="s", trimmed_tokens=5) | {"team": "chat"})
    with database.read() as connection:
        assert not has_cuts(connection, "search", 0.0)
        assert has_cuts(connection, "chat", 0.0)
        assert not has_cuts(connection, "chat", JANUARY + 1)


def test_the_saving_in_dollars_is_what_the_others_would_have_paid_more(database: Database) -> None:
    random = Random(8)
    rows = [one for name in names(30) for one in session(name, random, dearer=0.8)]
    book(database, *rows)
    found = compared(database)
    paid = sum(one["cost_pico"] for one in rows if not is_held_out("search", one["session"], SHARE)) / 1e12
    assert found.saved_usd is not None
    value, low, high = found.saved_usd
    assert low < value < high
    cost = next(figure for figure in found.figures if figure.name == "cost")
    assert cost.change is not None
    assert value == pytest.approx(paid / (1 - cost.change) - paid)


def test_sessions_of_one_request_count_if_parts_of_documents_are_left_out(database: Database) -> None:
    random = Random(9)
    book(database, *[one for name in names(2) for one in session(name, random, requests=1)])
    least = least_requests(ContextPolicy(long_documents="relevant"))
    with database.read() as connection:
        found = compare(connection, "search", SHARE, JANUARY - WINDOW_S, least)
    assert (found.held_sessions, found.cut_sessions) == (2, 2)
    assert least_requests(ContextPolicy()) == LEAST_REQUESTS
