"""The table of `thriftgate usage`, with the notes below it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from rich.console import Group
from rich.text import Text

from gateway.cli import tables
from gateway.ledger.reports.formats import cents_of, line_object, notes
from gateway.ledger.reports.report import Line, Report
from gateway.settings.prices import Currency


def as_table(report: Report, currency: Currency | None = None) -> Group:
    """A table for the terminal. `currency`: a second currency in which costs are shown, too."""
    columns = _columns(report.total, currency)
    table = tables.Table(*report.by, *tables.numbers(*columns.values()))
    for line in report.rows:
        row = line_object(line, report.by)
        table.add_row(*line.group, *(_shown(name, row, currency) for name in columns))
    total, blank = line_object(report.total, ()), ("",) * (len(report.by) - 1)
    table.add_row("total", *blank, *(_shown(name, total, currency) for name in columns), style="bold")
    rate = [f"1 USD = {currency.per_usd:f} {currency.code}, a fixed rate of {currency.as_of}."] if currency else []
    return Group(table, *map(Text, [*notes(report), *rate]))


def _columns(total: Line, currency: Currency | None) -> dict[str, str]:
    """Name → title of the columns to show. Some columns are not shown if their total is 0."""
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
