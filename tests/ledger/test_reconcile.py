"""Exports of providers are read as they come, and every difference has a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.ledger.reports.invoices import Dialect, Invoice, read
from gateway.ledger.reports.reconcile import Reconciliation, as_object, reconcile
from gateway.settings.files import ConfigError
from gateway.state.sql.database import Database
from tests.ledger.booked import DAY, JANUARY, book, row

OPENAI_USAGE = {
    "object": "page",
    "data": [
        {
            "object": "bucket",
            "start_time": int(JANUARY),
            "end_time": int(JANUARY + DAY),
            "results": [
                {
                    "object": "organization.usage.completions.result",
                    "input_tokens": 15,
                    "input_cached_tokens": 5,
                    "output_tokens": 20,
                    "num_model_requests": 1,
                    "model": "big-2026-01-01",
                }
            ],
        }
    ],
}
OPENAI_COSTS = {
    "data": [
        {
            "start_time": int(JANUARY),
            "results": [
                {"amount": {"value": 0.00001, "currency": "usd"}, "line_item": "big-2026-01-01, input"},
                {"amount": {"value": 0.0000405, "currency": "usd"}, "line_item": "big-2026-01-01, output"},
            ],
        }
    ]
}
ANTHROPIC_USAGE = {
    "data": [
        {
            "starting_at": "2026-01-01T00:00:00Z",
            "ending_at": "2026-01-02T00:00:00Z",
            "results": [
                {
                    "uncached_input_tokens": 10,
                    "cache_creation": {"ephemeral_1h_input_tokens": 2, "ephemeral_5m_input_tokens": 1},
                    "cache_read_input_tokens": 2,
                    "output_tokens": 20,
                    "model": "big",
                }
            ],
        }
    ]
}
ANTHROPIC_COST = {
    "data": [
        {"starting_at": "2026-01-01T00:00:00Z", "results": [{"amount": "0.00505", "currency": "USD", "model": "big"}]}
    ]
}


def given(tmp_path: Path, content: Any, dialect: Dialect = "generic") -> Invoice:
    path = tmp_path / "invoice"
    path.write_text(content if isinstance(content, str) else orjson.dumps(content).decode())
    return read(path, dialect)


def compared(database: Database, invoice: Invoice, **more: Any) -> Reconciliation:
    with database.read() as connection:
        return reconcile(connection, invoice, ["large"], "", **more)


@pytest.mark.parametrize(
    ("content", "dialect"),
    [
        (OPENAI_USAGE, "openai"),
        (OPENAI_COSTS, "openai"),
        (ANTHROPIC_USAGE, "anthropic"),
        (ANTHROPIC_COST, "anthropic"),
        ("date,model,input_tokens,output_tokens,cost_usd\n2026-01-01,Big,15,20,$0.0000505\n", "generic"),
        ([{"date": "2026-01-01", "model": "acme/big", "requests": 1}], "generic"),
        ("request_id,timestamp,cost_usd\nreq_mine,2026-01-01T00:00:00Z,0.0000505\n", "generic"),
    ],
)
def test_what_agrees_matches(any_database: Database, tmp_path: Path, content: Any, dialect: Dialect) -> None:
    book(any_database, row(id="req_mine-1", request_id="req_mine"), row(at=JANUARY + DAY), row(backend="other"))
    found = compared(any_database, given(tmp_path, content, dialect))
    assert found.counts == {"matched": 1, "differing": 0, "missing": 0, "extra": 0}
    assert found.booked.pico == 50_500_000


def test_missing_extra_and_differing_are_told_with_their_differences(any_database: Database, tmp_path: Path) -> None:
    book(any_database, row(), row(model="only-here", cost_pico=7), row(model="unpriced", cost_pico=None))
    text = (
        "date,model,input_tokens,output_tokens,cost_usd\n"
        "2026-01-01,big,15,21,0.0000505\n"
        "2026-01-01,only-there,1,2,0.5\n"
    )
    told = as_object(compared(any_database, given(tmp_path, text)))
    assert told["counts"] == {"matched": 0, "differing": 1, "missing": 1, "extra": 2}
    kinds = {pair["name"]: (pair["kind"], pair["difference"]) for pair in told["pairs"]}
    assert kinds["2026-01-01 big"] == (
        "differing",
        {"requests": None, "input_tokens": 0, "output_tokens": 1, "usd": "0"},
    )
    assert kinds["2026-01-01 only-there"][1]["usd"] == "0.5"
    assert kinds["2026-01-01 only-here"][1]["usd"] == "-0.000000000007"
    assert told["total"]["difference"]["usd"] == "0.499999999993"
    assert told["unpriced"] == 1


def test_attempts_of_one_request_are_one_line(any_database: Database, tmp_path: Path) -> None:
    first = row(outcome="failed", cost_pico=0, output_tokens=0)
    book(any_database, first, row(request_id=first["request_id"], attempt=2))
    text = f"request_id,date,output_tokens\n{first['request_id']},2026-01-01,20\n"
    assert compared(any_database, given(tmp_path, text)).counts["matched"] == 1


def test_dollars_may_differ_by_the_tolerance_and_no_more(any_database: Database, tmp_path: Path) -> None:
    book(any_database, row())
    invoice = given(tmp_path, "date,model,cost_usd\n2026-01-01,big,0.00005\n")
    assert compared(any_database, invoice, tolerance_pico=500_000).counts["matched"] == 1
    assert compared(any_database, invoice, tolerance_pico=499_999).counts["differing"] == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "has no lines"),
        ("[]", "has no lines"),
        ("{", "cannot be read"),
        ("model,cost_usd\nbig,1\n", "line 1: has no time"),
        ("date,input_tokens\n2026-01-01,-4\n", "line 1: '-4' is no count"),
        ("date,input_tokens\n2026-01-01,1.5\n", "is no count"),
        ("date,cost_usd\n2026-01-01,much\n", "'much' is no number"),
        ("date,cost_usd\n2026-01-01,NaN\n", "'NaN' is no number"),
        ("date,cost_usd\nyesterday,1\n", "line 1"),
        ('[{"date": "2026-01-01", "amount": {"value": 1, "currency": "eur"}}]', "only USD"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path: Path, content: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        given(tmp_path, content)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "none.csv", "openai")
