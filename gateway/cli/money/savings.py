"""`thriftgate savings`: shows on one screen how much was saved, and by which means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import click

from gateway.api.routes.usage import UsageQuery
from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.money.usage import spend_of
from gateway.cli.options import Context, common
from gateway.cli.requests.lines import money
from gateway.cli.zones import named_moment, zones
from gateway.ledger.reports.formats import dollars
from gateway.ledger.reports.period import parse_period


@click.command()
@common
@click.option("--team", help="Only this team.")
@click.option("--since", default="30d", show_default=True, help="Start: 2026-01-31, or 7d for the last seven days.")
@click.option("--until", help="End, in the same form.")
def savings(context: Context, team: str | None, since: str, until: str | None) -> None:
    """Show what routing, cache and trimming saved, compared with one model for every request.

    The cost of idle time of machines that are paid by the hour is subtracted. `thriftgate usage --savings` has the
    method and each team's overhead; --json has exact amounts.

    \b
    thriftgate savings --team search --since 7d
    """
    now, settings = time.time(), context.of_running()
    try:
        zone = zones(settings)(team or "")
        begin, end = parse_period(since, until, now, zone)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with open_database(settings, existing=True) as database:
        if team is not None:
            known_team(database, settings, team)
        found = asyncio.run(spend_of(settings, database).read(UsageQuery("team", team, begin, end, savings=True)))
    assert found.savings is not None
    total = found.report.total
    values = {
        **found.savings,
        "since": since,
        "saved_by_cache_usd": dollars(total.saved_pico),
        "idle_usd": dollars(total.idle_pico),
        "net_saved_usd": f"{Decimal(found.savings['total']['saved_usd']) - Decimal(dollars(total.idle_pico)):f}",
    }
    context.print(values, lambda: _show(values, f"since {named_moment(begin, zone)}" if begin else f"since {since}"))


def _show(values: Mapping[str, Any], period: str) -> None:
    if not values["teams"]:
        echo(f"No request {period}. Nothing was saved yet.")
        return
    total = values["total"]
    baseline, saved = Decimal(total["baseline_usd"]), Decimal(values["net_saved_usd"])
    share = f" ({saved / baseline:.0%})" if baseline > 0 and saved >= 0 else ""
    verb = "Saved" if saved >= 0 else "Spent more"
    echo(f"{verb}: {_usd(abs(saved))}{share} {period}.")
    echo(f"  with one model for everything   {_usd(baseline)}")
    echo(f"  cost                            {_usd(total['cost_usd'])}")
    if Decimal(values["idle_usd"]):
        echo(f"  idle time of own machines       {_usd(values['idle_usd'])}")
    echo(f"  saved by the cache's answers    {_usd(values['saved_by_cache_usd'])}")
    rest = Decimal(total["saved_usd"] or 0) - Decimal(values["saved_by_cache_usd"])
    echo(f"  the rest: routing and trimming  {_usd(rest)}")
    table = tables.Table("team", "compared with", *tables.numbers("requests", "baseline", "cost", "saved"))
    for one in values["teams"]:
        figures = [_usd(one[f"{name}_usd"]) for name in ("baseline", "cost", "saved")]
        table.add_row(one["team"], one["reference"] or "no price known", f"{one['requests']:,}", *figures)
    tables.console(highlight=False).print(table)


def _usd(amount: str | Decimal | None) -> str:
    return "–" if amount is None else money(int(Decimal(amount) * 10**12))
