"""Which requests missed the provider's prompt cache, and why."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.ledger.reports.cache_misses import Miss, misses, session_rows
from gateway.ledger.rows import Row
from gateway.state.sql.database import Database
from tests.ledger.booked import JANUARY, book, row

PRICES = "input=3000000 output=15000000 cached_input=300000 cache_write_5m=3750000 cache_write_1h=6000000"


def call(seconds: float, **facts: Any) -> Row:
    """A call of a session that reads 20,000 tokens and writes 500."""
    usual: dict[str, Any] = {
        "session": "s",
        "outcome": "ok",
        "backend": "claude",
        "model": "claude-opus-4-6",
        "prices": PRICES,
    }
    usual |= {"input_tokens": 5, "cached_tokens": 20_000, "cache_write_5m_tokens": 500, "tier": "hosted"}
    usual |= {"id": "r-1", "request_id": "r", "attempt": 1, "at": JANUARY + seconds, "organisation": "acme"}
    return Row(**{**usual, "team": "search", "key_id": "k", **facts})


FIRST = call(0, cached_tokens=0, cache_write_5m_tokens=20_000)
COLD = {"cached_tokens": 0, "cache_write_5m_tokens": 20_500}


def found(*rows: Row) -> list[Miss]:
    return list(misses(rows))


@pytest.mark.parametrize(
    ("second", "cause"),
    [
        (call(10), None),
        (call(10, **COLD), "beginning changed"),
        (call(400, **COLD), "expired"),
        (call(10, **COLD, trimmed_tokens=900), "own cut"),
        (call(10, **COLD, backend="other", model="claude-haiku-4-5"), "model switch"),
        (call(10, cached_tokens=0, cache_write_5m_tokens=0, input_tokens=20_500), "not marked"),
        (call(10, cached_tokens=9_000, cache_write_5m_tokens=11_500), "history changed"),
        (call(10, cached_tokens=0, cache_write_5m_tokens=9_000), "history changed"),
        (call(10, **COLD, session="t"), None),
        (call(10, **COLD, key_id="k2"), None),
        (call(10, **COLD, estimated=True), None),
        (call(10, cached_tokens=19_500), None),
    ],
)
def test_the_cause_of_a_miss(second: Row, cause: str | None) -> None:
    assert [miss.cause for miss in found(FIRST, second)] == ([] if cause is None else [cause])


def test_an_entry_of_an_hour_and_one_of_gpt_live_longer() -> None:
    hour = FIRST._replace(cache_write_5m_tokens=0, cache_write_1h_tokens=20_000)
    assert [miss.cause for miss in found(hour, call(400, **COLD))] == ["beginning changed"]
    gpt = {"model": "gpt-5.6", "backend": "gpt"}
    assert [miss.cause for miss in found(FIRST._replace(**gpt), call(1500, **COLD, **gpt))] == ["beginning changed"]
    assert [miss.cause for miss in found(FIRST._replace(**gpt), call(1900, **COLD, **gpt))] == ["expired"]


def test_a_session_that_came_back_from_another_model_missed_because_of_the_switch() -> None:
    away = call(10, backend="other", model="claude-haiku-4-5")
    assert [miss.cause for miss in found(FIRST, away, call(20, **COLD))] == ["model switch"]


def test_a_miss_costs_what_was_paid_above_the_price_of_reading() -> None:
    (miss,) = found(FIRST, call(10, **COLD))
    assert (miss.expected_tokens, miss.lost_tokens) == (20_005, 20_005)
    assert miss.lost_pico == 20_005 * (3_750_000 - 300_000)
    (unpriced,) = found(FIRST, call(10, **COLD, prices=""))
    assert unpriced.lost_pico is None


def test_only_answered_calls_of_named_sessions_are_read(database: Database) -> None:
    book(database, row(session="s"), row(), row(session="s", outcome="failed"), row(session="t", team="chat"))
    with database.read() as connection:
        read = session_rows(connection, since=0, team=None, session=None)
        assert [(one.session, one.team) for one in read] == [("s", "search"), ("t", "chat")]
        assert len(session_rows(connection, since=0, team="chat", session=None)) == 1
        assert not session_rows(connection, since=0, team="chat", session="s")
