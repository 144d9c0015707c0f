"""Rows put straight into the ledger, where a test is about adding them up and not about how they came there."""

from __future__ import annotations

from itertools import count
from typing import Any

from sqlalchemy import insert

from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger, ledger_sums

JANUARY = 1_767_225_600.0
"""2026-01-01 UTC."""
HOUR, DAY = 3600.0, 86400.0
USD = 10**12
UNITS = "input=1000000 output=2000000 cached_input=100000"
_number = count(1)


def row(**facts: Any) -> dict[str, Any]:
    """An attempt of 10 input, 5 cached and 20 output tokens at `UNITS`, but for `facts`."""
    number = next(_number)
    usual: dict[str, Any] = {
        "id": f"req_{number:05}-1",
        "request_id": f"req_{number:05}",
        "attempt": 1,
        "at": JANUARY,
        "organisation": "acme",
        "team": "search",
        "key_id": "key-search",
        "dialect": "openai_chat",
        "model_asked": "auto",
        "backend": "large",
        "model": "big",
        "tier": "hosted",
        "outcome": "ok",
        "stream": False,
        "cache": "off",
        "input_tokens": 10,
        "cached_tokens": 5,
        "output_tokens": 20,
        "cost_pico": 50_500_000,
        "price_source": "test",
        "prices": UNITS,
        "tags": "{}",
    }
    return usual | facts


def book(database: Database, *rows: dict[str, Any]) -> None:
    with database.begin() as connection:
        for one in rows:
            connection.execute(insert(ledger).values(**one))


def roll_up(database: Database, **facts: Any) -> None:
    """One sum that stands for raw rows which are gone."""
    number = next(_number)
    kept = {name: value for name, value in row().items() if name in ledger_sums.c}
    zero = {column.name: 0 for column in ledger_sums.c if column.name.endswith(("_tokens", "_bytes"))}
    text = dict.fromkeys(("end_user", "cost_centre", "region", "kind"), "")
    flags = dict.fromkeys(("simulated", "escalated", "estimated"), False)
    usual = {"rollup": f"r{number}", "number": 0, "requests": 1, "attempts": 1}
    with database.begin() as connection:
        connection.execute(insert(ledger_sums).values(**{**zero, **text, **flags, **kept, **usual, **facts}))
