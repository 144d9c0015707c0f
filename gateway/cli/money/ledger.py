"""`thriftgate ledger`: verify, drain, roll up and reprice the ledger."""

from __future__ import annotations

import asyncio
import getpass
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, date, datetime

import click

from gateway.backends.providers.discover import backends_of
from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.domain.backend import Backend
from gateway.domain.end_user import Pseudonyms
from gateway.domain.protocols import PriceList
from gateway.domain.units import usd_text
from gateway.ledger.journal import segments
from gateway.ledger.journal.append import append
from gateway.ledger.prices import unpriced
from gateway.ledger.prices.catalogue import Catalogue
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.prices.reprice import repriced
from gateway.ledger.reports.period import parse_when
from gateway.ledger.store import anchor, end_users
from gateway.ledger.store.retention import DAY_S, count_old
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.verify import Verdict
from gateway.ledger.store.verify import verify as verified
from gateway.ledger.store.writer import Writer
from gateway.settings.gateway import Settings
from gateway.state.leases import orphaned_holds


@click.group()
def ledger() -> None:
    """Check, drain, roll up and reprice the ledger; forget an end user; release money that is held for a lost host."""


@ledger.command()
@common
def drain(context: Context) -> None:
    """Write the journals of this data directory into the ledger.

    A running gateway does this by itself. Use the command after the gateway has ended.
    """
    settings = context.of_running()
    count = _with_writer(settings, None, Writer.drain_once)
    context.print({"rows": count}, f"{count} row(s) written.")


@ledger.command()
@common
def verify(context: Context) -> None:
    """Check that no row was changed since it was written.

    It finds rows that were edited, deleted, inserted, moved or cut off: every row is hashed together with the hash
    before it, and the newest hash is also in ledger.anchor in the data directory. If the host itself is not trusted,
    compare that hash with your log (`the ledger's chain`).

    Exit status: 0 when no row was changed, 1 otherwise.
    """
    settings = context.of_running()
    try:
        anchors = anchor.read(settings.paths.anchor)  # before the ledger, because a running gateway advances both
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    with open_database(settings) as database, snapshot(database) as connection:
        verdict = verified(connection, anchors)
    context.print({**asdict(verdict), "ok": not verdict.findings}, lambda: _show(verdict))
    if verdict.findings:
        sys.exit(1)


def _show(verdict: Verdict) -> None:
    for chain in verdict.chains:
        head = "its anchor is on another host" if chain.anchored is None else f"anchored at {chain.anchored}"
        gone = f", {chain.removed} of them rolled up" if chain.removed else ""
        echo(f"chain {chain.chain}, begun {_moment(chain.begun_at)}: {chain.entries} entries{gone}; {head}")
    if verdict.outside:
        echo(f"{verdict.outside} row(s) are older than the chains, so changes to them cannot be detected.")
    for one in verdict.findings:
        places = (one.chain and f"chain {one.chain}", f"entry {one.seq}" if one.seq else "", one.row)
        where = " ".join(filter(None, places))
        echo(f"WRONG: {where or 'the ledger'}: {one.what}")
    if not verdict.findings:
        echo("No row was changed since it was written." if verdict.chains else "There is no chain yet.")


@ledger.command()
@common
@click.option("--days", type=click.IntRange(min=1), help="Days to keep; default: ledger.keep_days.")
@click.option("--dry-run", is_flag=True, help="Only print the number of old rows.")
def retain(context: Context, days: int | None, dry_run: bool) -> None:
    """Replace old rows by sums of quarter hours.

    Totals stay exact. Rows are old when they are older than ledger.keep_days. A running gateway does this by itself;
    while one runs, this command changes nothing.
    """
    settings = context.of_running()
    keep = days or settings.config.ledger.keep_days
    if keep is None:
        raise click.UsageError("Rows are kept for ever: set ledger.keep_days in gateway.yaml, or give --days.")
    now = time.time()
    if dry_run:
        with open_database(settings) as database, database.read() as connection:
            old = count_old(connection, keep, now)
    else:
        old = _with_writer(settings, keep, Writer.retain_all)
    day = _moment(now - keep * DAY_S)
    verb = "would become" if dry_run else "became"
    context.print({"rows": old, "before": day, "dry_run": dry_run}, f"{old} row(s) from before {day} {verb} sums.")


@ledger.command("unpriced")
@common
@click.option("--since", help="Start: 2026-01-31, or 7d for the last seven days.")
@click.option("--until", help="End, in the same form.")
def list_unpriced(context: Context, since: str | None, until: str | None) -> None:
    """List attempts whose price was not known.

    The list also has attempts with units that have no price (fees besides tokens, such as web searches), attempts with
    an unknown service tier, whose tokens are charged like the most expensive tier, and attempts that cost nothing
    although their backend has a price.
    """
    settings = context.of_running()
    begin, end = _period(since, until)
    backends = asyncio.run(_backends(settings))
    with open_database(settings) as database, snapshot(database) as connection:
        found = unpriced.groups(connection, _prices(settings)(_today()), backends, since=begin, until=end)
    table = tables.Table("backend", "model", "what", "rows", "tokens", "first", "last", "price known today", "units")
    for one in found:
        table.add_row(
            one.backend, one.model, one.why, str(one.rows), str(one.tokens),
            _moment(one.first_at), _moment(one.last_at), one.price_source or "no", one.units or "–",
        )  # fmt: skip
    context.print(
        [asdict(one) for one in found],
        lambda: tables.console().print(table) if found else echo("Every attempt has a price."),
    )


@ledger.command()
@common
@click.option("--model", required=True, help="The backend's name for its model, or the backend's own name.")
@click.option("--since", help="Start: 2026-01-31, or 7d for the last seven days.")
@click.option("--until", help="End, in the same form.")
@click.option("--zero", is_flag=True, help="Reprice rows that cost nothing instead of those without a price.")
@click.option("--yes", is_flag=True, help="Write the rows; without it, only print what would be written.")
def reprice(context: Context, model: str, since: str | None, until: str | None, zero: bool, yes: bool) -> None:
    """Apply the price that is known now to attempts without a price.

    Attempts of which only the service tier had no price are included.

    No row is changed: a new row supersedes each old one, and reports count the newest. Rows that were rolled up into
    sums cannot be repriced.
    """
    settings = context.of_running()
    begin, end = _period(since, until)
    if (keep := settings.config.ledger.keep_days) is not None:  # rows that are rolled up meanwhile would count twice
        begin = max(begin or 0.0, time.time() - (keep - 0.5) * DAY_S)
    backends, prices_on = asyncio.run(_backends(settings)), _prices(settings)
    why = unpriced.free if zero else unpriced.repriceable
    which = unpriced.which(why=why, model=model, since=begin, until=end)
    with open_database(settings) as database, snapshot(database) as connection:
        found = list(repriced(unpriced.rows(connection, which), prices_on, backends))
        left = unpriced.count(connection, which) - len(found)
    cost = usd_text(sum(row.cost_pico or 0 for row in found))
    if yes and found:
        append(settings.paths.journal, found, "reprice")
        _with_writer(settings, None, Writer.drain_once)
    what = "superseded" if yes else "to supersede (give --yes)"
    context.print(
        {"rows": len(found), "cost_usd": cost, "left": left, "written": yes and bool(found)},
        f"{len(found)} row(s) {what}, {cost} USD; {left} row(s) stay, because no other price is known for them.",
    )


@ledger.command()
@common
@click.argument("which", metavar="HOST|WORKER")
@click.option("--yes", is_flag=True, help="Release it; without it, only print what would be released.")
def release(context: Context, which: str, yes: bool) -> None:
    """Free the money that budgets hold for a lost host.

    With WORKER, the money that is held for one of its workers is freed; `thriftgate doctor` lists hosts and workers. A
    worker may have spent what it had leased, and only its journal shows how much. If the gateway is started again on
    its data directory, it drains the journal and frees the rest by itself. So release the money only if that directory
    is lost. The spend in it is then missing in the ledger, and the budgets can be overrun by that amount.
    """
    settings = context.of_running()
    here = {segments.leases_as(lane) for lane in segments.lanes(settings.paths.journal)}
    with open_database(settings) as database, database.begin() as connection:
        held = [one for one in orphaned_holds.held(connection) if which in (one.worker, one.host)]
        if any(one.worker in here for one in held):
            raise click.ClickException(
                f"Its journal is in {settings.paths.journal}; use `thriftgate ledger drain` instead."
            )
        if not held:
            raise click.ClickException(f"Nothing is held for {which}; `thriftgate doctor` lists lost hosts.")
        if yes:
            orphaned_holds.release(connection, which, f"{getpass.getuser()} (command line)"[:64])
    what = "released" if yes else "to be released (give --yes)"
    values = [{"worker": one.worker, "budget": one.budget, "amount": one.amount, "released": yes} for one in held]
    risk = "The part of it that was spent is missing in the ledger: its budgets may be overrun by that amount."
    context.print(values, "\n".join([*(f"{one.amount}, {one.budget}: {what}" for one in held), risk]))


@ledger.command()
@common
@click.option("--end-user", required=True, help="The end user's name as sent by clients, or its pseudonym (eu_…).")
def forget(context: Context, end_user: str) -> None:
    """Erase the name behind an end user's pseudonym. Rows stay under the pseudonym, so that the chain stays valid."""
    settings = context.of_running()
    try:
        pseudonyms = Pseudonyms(end_users.secret(settings.paths.pseudonyms))
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{settings.paths.pseudonyms}: {error}") from error
    with open_database(settings) as database, database.begin() as connection:
        pseudonym, erased = end_users.forget(connection, end_user, pseudonyms, time.time())
        rows = end_users.rows_of(connection, pseudonym)
    context.print(
        {"pseudonym": pseudonym, "erased": erased, "rows": rows},
        f"{erased} name(s) erased; {rows} row(s) stay under {pseudonym}.",
    )


def _with_writer(settings: Settings, keep_days: int | None, work: Callable[[Writer], Awaitable[int]]) -> int:
    """Run `work` with the ledger's writer and return its result. Does nothing while a running gateway holds the
    writer's lock."""

    async def working() -> int:
        writer = Writer(settings.paths.journal, database, keep_days=keep_days)
        try:
            return await work(writer)
        finally:
            await writer.aclose()

    with open_database(settings) as database:
        return asyncio.run(working())


async def _backends(settings: Settings) -> dict[str, Backend]:
    return {backend.name: backend for backend in await backends_of(settings.config, None)}


def _prices(settings: Settings) -> Callable[[date], PriceList]:
    """A function from a day to the price list of that day."""
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


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
