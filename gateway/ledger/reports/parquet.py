"""Writes Parquet files. Money is stored as decimal numbers with twelve places, counts as 64-bit integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

from gateway.ledger.reports.formats import ADEQUACY, MONEY, NAMES, figures
from gateway.ledger.reports.report import Report

PRECISION, SCALE = 38, 12


class ParquetMissing(RuntimeError):
    """Raised if pyarrow, an optional dependency, is not installed."""

    def __init__(self) -> None:
        super().__init__("Parquet needs pyarrow; pip install 'thriftgate[parquet]', or take csv.")


def as_parquet(report: Report) -> bytes:
    """The report's rows as a Parquet file. The file has no totals, so that its columns can be summed. Raises
    ParquetMissing."""
    groups: dict[str, list[Any]] = {name: [line.group[at] for line in report.rows] for at, name in enumerate(report.by)}
    lines = [figures(line) for line in report.rows]
    counts = {
        name: [Decimal(str(line[at])) if name in MONEY.values() else line[at] for line in lines]
        for at, name in enumerate(NAMES)
    }
    return table({**groups, **counts}, {**dict.fromkeys(groups, str), **_types()})


def _types() -> dict[str, type]:
    return {name: Decimal if name in MONEY.values() else float if name == ADEQUACY else int for name in NAMES}


def table(columns: Mapping[str, Sequence[Any]], types: Mapping[str, type]) -> bytes:
    """Make a Parquet file with `columns`. `types`: the type of each column, which is str, int, float, Decimal or
    datetime (UTC). Raises ParquetMissing."""
    try:
        import pyarrow
        from pyarrow.parquet import write_table
    except ModuleNotFoundError as error:
        raise ParquetMissing from error
    arrow = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        Decimal: pyarrow.decimal128(PRECISION, SCALE),
        datetime: pyarrow.timestamp("ms", tz="UTC"),
    }
    schema = pyarrow.schema([(name, arrow[types[name]]) for name in columns])
    out = BytesIO()
    write_table(pyarrow.table(dict(columns), schema=schema), out)
    return out.getvalue()
