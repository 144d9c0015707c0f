"""Rows without a price are listed, and superseded once there is one; reports count the newest only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.ledger.prices import unpriced
from gateway.ledger.prices.reprice import repriced
from gateway.ledger.reports.report import read_usage
from gateway.ledger.rows import MOST_PICO, Row
from gateway.ledger.store import anchor
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.verify import verify
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from tests.ledger.samples import LARGE, ledger_rows, row, write

BACKENDS = {"large": LARGE}


class At:
    """One price for everything."""

    def __init__(self, price: Price | None) -> None:
        self._price = price

    def price(self, backend: Backend) -> Price | None:
        return self._price


def now(price: Price | None) -> Callable[[date], At]:
    return lambda day: At(price)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def free(number: int) -> Row:
    return row(f"req_{number}", cost_pico=0)


def unknown(number: int, **facts: object) -> Row:
    return row(f"req_{number}", **{"cost_pico": None, "at": 1000.0 + number, **facts})


def found(database: Database, price: Price | None, **which: object) -> list[Row]:
    condition = unpriced.which(why=unpriced.unpriced, **which)  # type: ignore[arg-type]
    with snapshot(database) as connection:
        return list(repriced(unpriced.rows(connection, condition), now(price), BACKENDS))


def test_a_superseding_row_names_the_one_it_replaces(any_database: Database, directory: Path) -> None:
    write(directory, any_database, [unknown(1), unknown(2), row("req_3")])
    fresh = found(any_database, Price(input=5, output=7, source="list big", as_of="2026-01-01"))
    assert [(one.id, one.supersedes, one.cost_pico) for one in fresh] == [
        ("req_1-1~1", "req_1-1", 190),
        ("req_2-1~1", "req_2-1", 190),
    ]
    assert (fresh[0].prices, fresh[0].price_source) == ("input=5 output=7", "list big (2026-01-01)")
    assert fresh[0].at == 1001.0
    before = ledger_rows(any_database)
    write(directory, any_database, fresh)
    write(directory, any_database, fresh)  # twice counts once
    after = ledger_rows(any_database)
    assert [one for one in after if not one["supersedes"]] == before
    with snapshot(any_database) as connection:
        total = read_usage(connection, [("model",)])[0].total
        verdict = verify(connection, anchor.read(anchor.beside(directory)))
    assert (total.requests, total.attempts, total.unpriced, total.cost_pico) == (3, 3, 0, 430)
    assert (verdict.findings, verdict.chains[0].entries) == ((), 5)
    assert found(any_database, Price(input=6, output=7)) == []


def test_a_price_that_was_wrong_can_be_superseded_again(database: Database, directory: Path) -> None:
    write(directory, database, [free(1)])
    for price, id, cost in ((5, "req_1-1~1", 150), (6, "req_1-1~2", 180)):
        condition = unpriced.which(why=unpriced.free if price == 5 else ledger.c.cost_pico > 0)
        with snapshot(database) as connection:
            rows = unpriced.rows(connection, condition)
            (fresh,) = repriced(rows, now(Price(input=price, output=price)), BACKENDS)
        assert (fresh.id, fresh.cost_pico) == (id, cost)
        write(directory, database, [fresh])
    with snapshot(database) as connection:
        assert read_usage(connection, [("model",)])[0].total.cost_pico == 180


def test_what_is_not_known_stays(database: Database, directory: Path) -> None:
    write(
        directory,
        database,
        [
            unknown(1, backend="gone"),
            unknown(2, model="other"),
            unknown(3, simulated=True),
            unknown(4, input_tokens=0, output_tokens=0),
        ],
    )
    assert found(database, Price(input=1, output=1)) == []
    assert found(database, None) == []


def test_only_what_was_asked_for(database: Database, directory: Path) -> None:
    write(directory, database, [unknown(number) for number in range(5)])
    price = Price(input=1, output=1)
    assert len(found(database, price, model="big")) == len(found(database, price, model="large")) == 5
    assert found(database, price, model="small") == []
    assert [one.request_id for one in found(database, price, since=1001.0, until=1003.0)] == ["req_1", "req_2"]


def test_pages_leave_nothing_out(database: Database, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.prices.unpriced.PAGE", 3)
    write(directory, database, [unknown(number, at=1000.0 + number // 4) for number in range(9)])
    assert len(found(database, Price(input=1, output=1))) == 9


def test_an_absurd_price_is_cut_to_what_the_column_holds(database: Database, directory: Path) -> None:
    write(directory, database, [unknown(1)])
    assert [one.cost_pico for one in found(database, Price(input=10**18, output=10**18))] == [MOST_PICO]


def test_the_list_names_what_is_unpriced_and_what_is_free_without_reason(
    any_database: Database, directory: Path
) -> None:
    write(directory, any_database, [unknown(1), unknown(2, backend="mystery"), unknown(3), free(4), row("req_5")])
    with snapshot(any_database) as connection:
        groups = unpriced.groups(connection, At(Price(input=5, output=7, source="list")), BACKENDS)
        assert [(one.backend, one.why, one.rows, one.tokens, one.price_source) for one in groups] == [
            ("large", "unpriced", 2, 60, "list"),
            ("mystery", "unpriced", 1, 30, ""),
            ("large", "zero", 1, 30, "list"),
        ]
        assert (groups[0].first_at, groups[0].last_at) == (1001.0, 1003.0)
        assert [one.why for one in unpriced.groups(connection, At(Price(input=0, output=0)), BACKENDS)] == [
            "unpriced",
            "unpriced",
        ]
