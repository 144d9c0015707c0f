"""The table of `thriftgate usage`, with the notes below it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from decimal import Decimal
from typing import Any

from rich.console import Group
from rich.text import Text

from gateway.cli import tables
from gateway.ledger.reports.formats import cents_of, line_object, notes
from gateway.ledger.reports.report import Line, Report
from gateway.settings.prices import Currency


def as_table(report: Report, currency: Currency | None = None, zone: tzinfo = UTC) -> Group:
    """Format the report as a table for the terminal. `currency`: a second currency in which costs are shown, too.
    `zone`: the time zone of the report's days and hours."""
    columns = _columns(report.total, currency)
    titles = [f"{name} ({zone})" if name in ("day", "hour") else name for name in report.by]
    table = tables.Table(*titles, *tables.numbers(*columns.values()))
    for line in report.rows:
        row = line_object(line, report.by)
        group = [_hour(value) if name == "hour" else value for name, value in zip(report.by, line.group, strict=True)]
        table.add_row(*group, *(_shown(name, row, currency) for name in columns))
    total, blank = line_object(report.total, ()), ("",) * (len(report.by) - 1)
    table.add_row("total", *blank, *(_shown(name, total, currency) for name in columns), style="bold")
    rate = [f"1 USD = {currency.per_usd:f} {currency.code}, a fixed rate of {currency.as_of}."] if currency else []
    return Group(table, *map(Text, [*notes(report), *rate]))


def _hour(value: str) -> str:
    """The hour without its offset from UTC, because the title of the column names the time zone."""
    return value[:16].replace("T", " ")


def _columns(total: Line, currency: Currency | None) -> dict[str, str]:
    """The columns to show, as name → title. Some columns are not shown if their total is 0."""
    wanted = {
        "requests": "requests",
        "cache_answers": "cached",
        "input_tokens": "input",
        "output_tokens": "output",
        "cost_usd": "cost USD",
        "cost_display": f"cost {currency.code}" if currency else "",
        "idle_usd": "idle USD",
        "saved_usd": "saved by cache",
        "unpriced": "no price",
    }
    seldom = {"cache_answers": total.cache_answers, "saved_usd": total.saved_pico, "idle_usd": total.idle_pico}
    seldom |= {"unpriced": total.unpriced, "cost_display": currency is not None}
    return {name: title for name, title in wanted.items() if seldom.get(name, 1)}


def _shown(name: str, row: Mapping[str, Any], currency: Currency | None) -> str:
    if name == "cost_display" and currency is not None:
        return cents_of(Decimal(row["cost_usd"]) * currency.per_usd)
    value = row[name]
    return cents_of(value) if name.endswith("_usd") else f"{value:,}"
