"""`thriftgate prices unpriced` and `prices reprice`: find attempts whose price was not known, and add their cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, date, datetime

import click
from sqlalchemy import true

from gateway.backends.providers.discover import backends_of
from gateway.cli import tables
from gateway.cli.echo import counted, echo
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.cli.zones import zones
from gateway.domain.backend import Backend
from gateway.domain.protocols import PriceList
from gateway.domain.units import usd_text
from gateway.ledger.journal.append import append
from gateway.ledger.prices import unpriced
from gateway.ledger.prices.catalogue import Catalogue
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.prices.reprice import repriced
from gateway.ledger.reports.period import parse_when
from gateway.ledger.store.retention import DAY_S
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.writer import Writer
from gateway.settings.gateway import Settings


@click.command("unpriced")
@common
@click.option("--since", help="Start: 2026-01-31, or 7d for the last seven days.")
@click.option("--until", help="End, in the same form.")
def list_unpriced(context: Context, since: str | None, until: str | None) -> None:
    """List attempts whose price was not known.

    It also lists attempts whose fee or service tier has no price, and attempts that cost 0 although the backend has a
    price.
    """
    settings = context.of_running()
    begin, end = _period(since, until)
    backends = asyncio.run(_backends(settings))
    with open_database(settings, existing=True) as database, snapshot(database) as connection:
        found = unpriced.groups(connection, _prices(settings)(_today()), backends, since=begin, until=end)
    zone = zones(settings)("")
    figures, times = tables.numbers("rows", "tokens"), (f"first ({zone})", f"last ({zone})")
    table = tables.Table("backend", "model", "what", *figures, *times, "price known today", *tables.prose("units"))
    for one in found:
        table.add_row(
            one.backend, one.model, one.why, f"{one.rows:,}", f"{one.tokens:,}",
            *(f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M}" for at in (one.first_at, one.last_at)),
            one.price_source or "no", one.units or "",
        )  # fmt: skip
    context.print(
        [asdict(one) for one in found],
        lambda: tables.console().print(table) if found else echo("Every attempt has a price."),
    )


@click.command()
@common
@click.option("--model", required=True, help="The backend's name for its model, or the backend's own name.")
@click.option("--since", help="Start: 2026-01-31, or 7d for the last seven days.")
@click.option("--until", help="End, in the same form.")
@click.option("--zero", is_flag=True, help="Reprice rows with cost 0 instead of rows without a price.")
@click.option("--yes", is_flag=True, help="Write the rows; without --yes, only print them.")
def reprice(context: Context, model: str, since: str | None, until: str | None, zero: bool, yes: bool) -> None:
    """Add the cost of attempts that had no price.

    The present price is used, also for attempts whose service tier had no price.

    No row is changed: reports count the new row that supersedes it. Rows that became sums cannot be repriced.
    """
    settings = context.of_running()
    begin, end = _period(since, until)
    # Rows that will soon be rolled up are left out, because a row that is rolled up during the repricing counts twice.
    if (keep := settings.config.ledger.keep_days) is not None:
        begin = max(begin or 0.0, time.time() - (keep - 0.5) * DAY_S)
    backends, prices_on = asyncio.run(_backends(settings)), _prices(settings)
    why = unpriced.free if zero else unpriced.repriceable
    which = unpriced.which(why=why, model=model, since=begin, until=end)
    with open_database(settings, existing=True) as database, snapshot(database) as connection:
        if not unpriced.count(connection, unpriced.which(why=true(), model=model)):
            echo(f"Note: no attempt in the ledger has the model or backend {model!r}.", err=True)
        found = list(repriced(unpriced.rows(connection, which), prices_on, backends))
        left = unpriced.count(connection, which) - len(found)
    cost = usd_text(sum(row.cost_pico or 0 for row in found))
    if yes and found:
        append(settings.paths.journal, found, "reprice")
        with_writer(settings, None, Writer.drain_once)
    what = "superseded" if yes else "to supersede (give --yes)"
    context.print(
        {"rows": len(found), "cost_usd": cost, "left": left, "written": yes and bool(found)},
        f"{counted(len(found), 'row')} {what}, {cost} USD. No other price is known: {counted(left, 'row')}.",
    )


def with_writer(settings: Settings, keep_days: int | None, work: Callable[[Writer], Awaitable[int]]) -> int:
    """Call `work` with the ledger's writer, and return its result. Does nothing if a running gateway holds the writer's
    lock."""

    async def working() -> int:
        writer = Writer(settings.paths.journal, database, keep_days=keep_days)
        try:
            return await work(writer)
        finally:
            await writer.aclose()

    with open_database(settings, existing=True) as database:
        return asyncio.run(working())


async def _backends(settings: Settings) -> dict[str, Backend]:
    return {backend.name: backend for backend in await backends_of(settings.config, None)}


def _prices(settings: Settings) -> Callable[[date], PriceList]:
    """Make a function that returns the price list of a day."""
    register, terms = Catalogue.load(own=settings.paths.prices), settings.config.prices
    known: dict[date, PriceBook] = {}

    def on(day: date) -> PriceList:
        if day not in known:
            known[day] = PriceBook(register, terms, today=lambda: day)
        return known[day]

    return on


def _today() -> date:
    return datetime.now(UTC).date()


def _period(since: str | None, until: str | None) -> tuple[float | None, float | None]:
    now = time.time()
    try:
        return (parse_when(since, now) if since else None), (parse_when(until, now) if until else None)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
