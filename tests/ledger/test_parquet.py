"""Parquet has the report's rows with exact money, and says what is missing where pyarrow is."""

from __future__ import annotations

import io
import sys
from decimal import Decimal

import pyarrow.parquet
import pytest

from gateway.ledger.reports.parquet import ParquetMissing, as_parquet
from gateway.ledger.reports.report import Line, Report

REPORT = Report(
    ("team", "model"), None, None, (Line(("a", "m"), 1, cost_pico=1), Line(("b", "m"), 2, cost_pico=10**21)), Line()
)


def test_money_is_decimal_and_counts_are_integers() -> None:
    table = pyarrow.parquet.read_table(io.BytesIO(as_parquet(REPORT)))
    assert table.column("team").to_pylist() == ["a", "b"]
    assert table.column("requests").to_pylist() == [1, 2]
    assert table.column("cost_usd").to_pylist() == [Decimal("0.000000000001"), Decimal(10**9)]


def test_an_empty_report_keeps_its_types() -> None:
    table = pyarrow.parquet.read_table(io.BytesIO(as_parquet(Report(("team",), None, None, (), Line()))))
    assert (table.num_rows, str(table.schema.field("team").type)) == (0, "string")


def test_without_pyarrow_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParquetMissing, match=r"pip install 'thriftgate\[parquet\]'"):
        as_parquet(REPORT)
