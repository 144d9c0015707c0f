"""`thriftgate top`: shows the present activity of the gateway."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from gateway.cli import tables
from gateway.cli.diagnosis.drained import Drained, drained
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.cli.requests.lines import cells, money
from gateway.cli.zones import ZoneOf, zones
from gateway.domain.units import usd_text
from gateway.ledger.reports.requests import Filter, recent
from gateway.ledger.rows import Row

MOST = 20_000
SHOWN = 5
"""Maximum number of teams, and of backends, that are shown."""
NEWEST = 3
"""Minimum number of newest requests that are shown. A terminal with more than 24 lines may show more."""


@dataclass(slots=True)
class Figures:
    """The sums of one team or one backend."""

    requests: set[str] = field(default_factory=set)
    calls: int = 0
    failed: int = 0
    hits: int = 0
    cost_pico: int = 0
    ms: list[float] = field(default_factory=list)

    def add(self, row: Row) -> None:
        self.requests.add(row.request_id)
        self.calls += row.attempt > 0
        self.hits += row.attempt == 0
        self.failed += row.outcome == "failed"
        self.cost_pico += row.cost_pico or 0
        if row.duration_ms is not None:
            self.ms.append(row.duration_ms)

    @property
    def median_ms(self) -> float | None:
        return sorted(self.ms)[len(self.ms) // 2] if self.ms else None

    def as_object(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "requests": len(self.requests),
            "calls": self.calls,
            "failed": self.failed,
            "cache_hits": self.hits,
            "cost_usd": usd_text(self.cost_pico),
            "median_ms": self.median_ms,
        }


@click.command()
@common
@click.option("--minutes", type=click.IntRange(1, 1440), default=5, show_default=True, help="Period that is summed up.")
@click.option(
    "--every",
    type=click.FloatRange(0.5, 60),
    default=2.0,
    show_default=True,
    help="Seconds between two updates of the screen.",
)
@click.option("--once", is_flag=True, help="Print the figures once and end. --json does the same.")
def top(context: Context, minutes: int, every: float, once: bool) -> None:
    """Watch teams, backends and the newest requests, until Ctrl-C. The figures come from the ledger.

    \b
    thriftgate top --minutes 15
    thriftgate top --once --json
    """
    settings = context.of_running()
    zone_of = zones(settings)
    with open_database(settings, existing=True) as database:

        def look() -> list[Row]:
            with database.read() as connection:
                return recent(connection, Filter(since=time.time() - minutes * 60), MOST)

        if once or context.as_json:
            rows = look()
            held = drained(settings)
            found = as_object(rows, minutes) | {"drained": sorted(held)}
            context.print(found, lambda: _print(rows, minutes, zone_of, held))
            return
        console = tables.console(highlight=False)

        def show() -> Group:
            return screen(look(), minutes, zone_of, console.height, drained(settings))

        try:
            with Live(show(), console=console, auto_refresh=False) as live:
                while True:
                    time.sleep(every)
                    live.update(show(), refresh=True)
        except KeyboardInterrupt:
            return


def grouped(rows: Iterable[Row], name: str) -> dict[str, Figures]:
    """Sum the rows for each value of the column `name`. The value with the most requests comes first."""
    found: defaultdict[str, Figures] = defaultdict(Figures)
    for row in rows:
        found[str(getattr(row, name)) or "cache"].add(row)
    return dict(sorted(found.items(), key=lambda each: -len(each[1].requests)))


def as_object(rows: list[Row], minutes: int) -> dict[str, Any]:
    return {
        "minutes": minutes,
        "teams": [figures.as_object(team) for team, figures in grouped(rows, "team").items()],
        "backends": [figures.as_object(name) for name, figures in grouped(rows, "backend").items()],
        "errors": dict(Counter(row.error for row in rows if row.error)),
    }


def _print(rows: list[Row], minutes: int, zone_of: ZoneOf, held: Drained) -> None:
    console = tables.console()
    console.print(screen(rows, minutes, zone_of, console.height, held))


def screen(rows: list[Row], minutes: int, zone_of: ZoneOf, height: int, held: Drained) -> Group:
    """The text for the terminal. It fits into 80 columns and `height` lines, of which there must be at least 24.

    `minutes`: the period of `rows`, for the heading. `held`: the drained backends.
    """
    errors = Counter(row.error for row in rows if row.error).most_common(3)
    failed = ", ".join(f"{error} {count}" for error, count in errors) or "none"
    total = money(sum(row.cost_pico or 0 for row in rows))
    count = len({row.request_id for row in rows})
    head = f"last {minutes} min: {count:,} requests, {total}; errors: {failed}"
    head += f"; drained: {', '.join(sorted(held))}" if held else ""
    newest = tables.Table("time", "team", "model", "result", *tables.numbers("tokens", "ms", "cost"), "request")
    fitting = max(NEWEST, (height - 2 * SHOWN - 4) // 3)  # a request takes three lines on a narrow terminal
    for row in rows[:fitting]:
        newest.add_row(*cells(row, zone_of(row.team)))
    parts = [_table(name, grouped(rows, name)) for name in ("team", "backend")]
    return Group(Text(head), *parts, *([newest] if rows else []))


def _table(title: str, found: dict[str, Figures]) -> tables.Table:
    table = tables.Table(title, *tables.numbers("requests", "failed", "cache hits", "median ms", "cost"))
    for name, one in list(found.items())[:SHOWN]:
        median = "–" if one.median_ms is None else f"{one.median_ms:,.0f}"
        table.add_row(name, f"{len(one.requests):,}", f"{one.failed:,}", f"{one.hits:,}", median, money(one.cost_pico))
    return table
