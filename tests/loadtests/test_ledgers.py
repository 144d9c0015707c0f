"""Sums of a real ledger, from a place on."""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import insert

from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger as table
from loadtests.ledgers import Ledger, Sums


def write(database: Database, *numbers: int, **more: object) -> None:
    row = {
        "attempt": 1, "at": 1.0, "organisation": "o", "team": "t", "key_id": "k", "dialect": "d", "model_asked": "m",
        "backend": "b", "model": "m", "tier": "large", "outcome": "ok", "stream": False, "cache": "miss",
        "input_tokens": 10, "output_tokens": 2, "cost_pico": 7, **more,
    }  # fmt: skip
    with database.engine.begin() as connection:
        connection.execute(
            insert(table), [{**row, "id": f"a{number}", "request_id": f"r{number}"} for number in numbers]
        )


def test_only_what_is_beyond_the_place_counts_and_calls_apart_from_hits(database: Database, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger.place() == 0
    write(database, 1, 2)
    place = ledger.place()
    write(database, 3, 4, 5)
    write(database, 6, backend="", cost_pico=0)
    write(database, 7, outcome="failed", estimated=True, cost_pico=None)
    assert ledger.bought(place) == Sums(4, 40, 8, 21, 4, not_ok=1, estimated=1)
    assert ledger.recalled(place) == Sums(1, 10, 2, 0, 1, 0, 0)
    assert ledger.bought(ledger.place()) == Sums(0, 0, 0, 0, 0, 0, 0)


def test_it_waits_for_rows_that_are_still_to_come_but_not_for_ever(database: Database, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    late = threading.Timer(0.2, write, (database, 1, 2))
    late.start()
    assert ledger.drained(0, 2)
    late.join()
    assert not ledger.drained(0, 3, patience_s=0.1)
