"""`thriftgate usage`: spend reports."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import click

from gateway.api.routes.usage import UsageFigures, UsageQuery
from gateway.cli import tables
from gateway.cli.echo import echo, echo_json, echo_raw
from gateway.cli.money.statement import show
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.money.usage_table import as_table
from gateway.cli.options import Context, Renamed, common
from gateway.cli.zones import ZoneOf, zones
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports import focus
from gateway.ledger.reports.dimensions import COLUMNS
from gateway.ledger.reports.formats import as_csv
from gateway.ledger.reports.parquet import ParquetMissing, as_parquet
from gateway.ledger.reports.period import parse_period
from gateway.policy.load import load_policies
from gateway.settings.gateway import Settings
from gateway.settings.prices import Currency
from gateway.state.sql.database import Database

FORMATS = ("table", "json", "csv", "parquet", "focus", "focus-parquet")


@click.command()
@common
@click.option("--team", help="Only spend of this team.")
@click.option("--since", help="Start: 2026-01-31, 2026-01-31T12:00+01:00, or 7d for the last seven days.")
@click.option("--until", help="End, in the same form.")
@click.option(
    "--by", default="model", show_default=True, help=f"Group by {', '.join([*COLUMNS, 'tag:NAME'])}; commas combine."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help=f"csv and parquet have only the rows; focus has each charge as FinOps FOCUS {focus.VERSION}.",
)
@click.option(
    "--out",
    "output",
    cls=Renamed,
    former="--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to FILE instead of printing.",
)
@click.option(
    "--savings", is_flag=True, help="Show savings compared with using one model for everything, and the method."
)
def usage(
    context: Context, team: str | None, since: str | None, until: str | None, by: str, form: str,
    output: Path | None, savings: bool,
) -> None:  # fmt: skip
    """Show requests, tokens and exact cost, grouped; budgets with their forecasts; wrong cache hits.

    Days and hours are those of the team's `timezone`; without --team, those of the default policy. The groups add up to
    the total. The exception is `--by tag`, because a request counts once for each of its tags; the
    groups of `--by tag:NAME` add up.

    \b
    thriftgate usage --team search --since 7d --by model
    thriftgate usage --by team,tag:customer --format csv > spend.csv
    thriftgate usage --since 30d --savings
    thriftgate usage --since 30d --format focus --out focus.csv
    """
    form = "json" if context.as_json else form
    if output is None and form.endswith("parquet") and sys.stdout.isatty():
        raise click.UsageError("Parquet is binary; name a file with --out, or redirect.")
    now, settings = time.time(), context.of_running()
    try:
        zone_of = zones(settings)
        zone = zone_of(team or "")
        begin, end = parse_period(since, until, now, zone)
        asked = UsageQuery(by, team, begin, end, savings, zone)
        with open_database(settings, existing=True) as database:
            if team is not None:
                known_team(database, settings, team)
            written = asyncio.run(
                _written(spend_of(settings, database), asked, form, settings.config.prices.currency, zone_of)
            )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except ParquetMissing as error:
        raise click.ClickException(str(error)) from error
    if output is None:
        _print(written, form)
    else:
        output.write_bytes(written)


def _print(written: bytes, form: str) -> None:
    match form:
        case "json":
            echo_json(written, nl=False)
        case "csv" | "focus":
            echo(written.decode(), nl=False)
        case _:
            echo_raw(written)


def spend_of(settings: Settings, database: Database) -> UsageFigures:
    """The figures that a running gateway would show. Backends that are not in gateway.yaml, and that a gateway would
    find on this machine, are left out."""
    policies = load_policies(settings.policies, settings.config.ceilings)
    return UsageFigures(
        database,
        PriceBook.of(settings),
        policy_of=lambda team: policies.find(team)[0],
        backends=lambda: settings.config.backends or (),
        organisations={name: one.budget for name, one in settings.config.organisations.items()},
        terms=settings.config.prices,
    )


async def _written(
    spend: UsageFigures, asked: UsageQuery, form: str, currency: Currency | None, zone_of: ZoneOf
) -> bytes:
    if form.startswith("focus"):
        rows = await spend.focus(asked)
        report = (await spend.read(asked)).report
        if report.total.unpriced:
            echo(f"Not included: {report.total.unpriced} attempts without a known price.", err=True)
        return focus.as_parquet(rows) if form == "focus-parquet" else focus.as_csv(rows).encode()
    found = await spend.read(asked)
    match form:
        case "json":
            return found.as_json()
        case "csv":
            return as_csv(found.report).encode()
        case "parquet":
            return as_parquet(found.report)
    console = tables.console()
    with console.capture() as captured:
        console.print(as_table(found.report, currency, asked.zone))
        show(found, console, zone_of)
    return captured.get().encode()
