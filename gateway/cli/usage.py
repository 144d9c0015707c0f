"""`thriftgate usage`, `prices`, `alerts` and `ledger`: what was spent, at which prices, and who was told."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.table import Table

from gateway.cli.options import Context, common
from gateway.cli.storage import open_database
from gateway.domain.units import pico_to_usd
from gateway.ledger import report as reports
from gateway.ledger.alerts import Alerts
from gateway.ledger.formats import as_csv, as_json, as_table
from gateway.ledger.period import parse_when
from gateway.ledger.prices import Catalogue
from gateway.ledger.writer import Writer
from gateway.policy.load import load_policies


@click.command()
@common
@click.option("--team", help="Only this team's.")
@click.option("--since", help="From here on: 2026-01-31, 2026-01-31T12:00+01:00, or 7d for the last seven days.")
@click.option("--until", help="Up to here, likewise.")
@click.option(
    "--by", default="model", show_default=True, help="Group by team, key, model, backend, day or tag; commas combine."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print it; csv has the rows alone, for spreadsheets.",
)
def usage(context: Context, team: str | None, since: str | None, until: str | None, by: str, form: str) -> None:
    """Requests, tokens and exact cost, grouped.

    \b
    thriftgate usage --team search --since 7d --by model
    thriftgate usage --by team,day --format csv > spend.csv
    """
    now = time.time()
    try:
        begin, end = (parse_when(text, now) if text else None for text in (since, until))
        with open_database(context.settings()) as database:
            found = asyncio.run(
                reports.usage(database, team=team, since=begin, until=end, by=by, prices=Catalogue.load())
            )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if context.as_json or form == "json":
        click.echo(as_json(found).decode())
    elif form == "csv":
        click.echo(as_csv(found), nl=False)
    else:
        Console().print(as_table(found))


@click.group()
def prices() -> None:
    """What models cost, and where the figures are from."""


@prices.command("list")
@common
@click.argument("pattern", default="")
def list_prices(context: Context, pattern: str) -> None:
    """The packaged price list, in USD per 1M tokens.

    PATTERN, a part of a model's name, narrows it.

    \b
    thriftgate prices list gpt-4o
    """
    entries = [
        (listed, price) for listed, price in Catalogue.load().entries() if pattern.lower() in listed.name.lower()
    ]
    rows = [
        {
            "model": listed.name,
            "input": f"{listed.input:f}",
            "cached_input": None if listed.cached_input is None else f"{listed.cached_input:f}",
            "output": f"{listed.output:f}",
            "window_tokens": listed.window_tokens,
            "as_of": price.as_of,
            "source": price.source,
        }
        for listed, price in entries
    ]
    table = Table("model", "input", "cached", "output", "window", "as of", title="USD per 1M tokens")
    for row in rows:
        table.add_row(
            *(
                str(row[name]) if row[name] is not None else "–"
                for name in ("model", "input", "cached_input", "output")
            ),
            str(row["window_tokens"] or "–"),
            str(row["as_of"]),
        )
    context.print(rows, lambda: Console().print(table))


@prices.command("check")
@common
def check_prices(context: Context) -> None:
    """The price of each backend in gateway.yaml, and where it is from.

    A backend without a price is named as unpriced: what it costs is in no total and no budget.
    """
    catalogue = Catalogue.load()
    rows = []
    for backend in context.settings().config.backends or ():
        price = catalogue.price(backend)
        rows.append(
            {
                "backend": backend.name,
                "input": None if price is None else f"{pico_to_usd(price.input * 10**6):f}",
                "output": None if price is None else f"{pico_to_usd(price.output * 10**6):f}",
                "source": price.source if price else "unpriced: give backends.price in gateway.yaml",
            }
        )
    table = Table("backend", "input", "output", "source", title="USD per 1M tokens")
    for row in rows:
        table.add_row(row["backend"], row["input"] or "–", row["output"] or "–", row["source"])
    context.print(rows, lambda: Console().print(table) if rows else click.echo("No backends in gateway.yaml."))


@click.group()
def alerts() -> None:
    """Budget alerts: what was sent, and whether receivers listen."""


@alerts.command("list")
@common
@click.option("--team", help="Only this team's.")
def list_alerts(context: Context, team: str | None) -> None:
    """The latest alerts, newest first, and what became of them."""
    with open_database(context.settings()) as database:
        sent = asyncio.run(Alerts(database, dict).sent(team))
    table = Table("alert", "team", "when", "receiver", "delivered", "tries", "last error")
    rows = []
    for one in sent:
        rows.append({name: getattr(one, name) for name in type(one).__slots__ if name != "payload"})
        table.add_row(
            one.id, one.team, _moment(one.created_at), one.target or "log only", _moment(one.delivered_at),
            str(one.tries), one.last_error,
        )  # fmt: skip
    context.print(rows, lambda: Console().print(table) if rows else click.echo("No alerts yet."))


@alerts.command("test")
@common
@click.option("--team", required=True, help="Whose receivers.")
def test_alerts(context: Context, team: str) -> None:
    """Post a test alert to every receiver in the team's policy.

    Exit status: 0 when every receiver accepted it, 1 otherwise.
    """
    settings = context.settings()
    policy, _ = load_policies(settings.policies, settings.config.ceilings).find(team)

    async def post() -> dict[str, str]:
        with open_database(settings) as database:
            room = Alerts(database, lambda: {team: policy})
            await room.open()
            try:
                return await room.test(team)
            finally:
                await room.aclose()

    verdicts = asyncio.run(post())
    lines = [f"{target}: {verdict or 'accepted'}" for target, verdict in verdicts.items()]
    context.print(verdicts, "\n".join(lines) or f"The policy of team {team} names no receiver (budget.notify).")
    if any(verdicts.values()):
        sys.exit(1)


@click.group()
def ledger() -> None:
    """Write into the ledger what journals still hold."""


@ledger.command()
@common
def drain(context: Context) -> None:
    """Write the journals of this data directory into the ledger.

    A running gateway does so by itself; this is for after it has ended.
    """
    settings = context.settings()

    async def drained() -> int:
        with open_database(settings) as database:
            writer = Writer(settings.paths.journal, database)
            try:
                return await writer.drain_once()
            finally:
                await writer.aclose()

    count = asyncio.run(drained())
    context.print({"rows": count}, f"{count} row(s) written.")


def _moment(at: float | None) -> str:
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
