"""`thriftgate ledger`: verifies, drains, rolls up and reprices the ledger."""

from __future__ import annotations

import getpass
import sys
import time
from dataclasses import asdict
from datetime import tzinfo

import click

from gateway.cli import tables
from gateway.cli.echo import counted, echo
from gateway.cli.money.repricing import list_unpriced, reprice, with_writer
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common, old_name
from gateway.cli.zones import named_moment, zones
from gateway.domain.end_user import Pseudonyms
from gateway.domain.money.windows import iso
from gateway.ledger.journal import segments
from gateway.ledger.store import anchor, end_users
from gateway.ledger.store.retention import DAY_S, count_old
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.verify import Verdict
from gateway.ledger.store.verify import verify as verified
from gateway.ledger.store.writer import Writer
from gateway.state.leases import orphaned_holds


@click.group()
def ledger() -> None:
    """Check, drain, roll up and reprice the ledger; forget an end user; release money that is held for a lost host."""


@ledger.command()
@common
def drain(context: Context) -> None:
    """Write the journals of this data directory into the ledger.

    A running gateway writes its journals into the ledger by itself. Use this command after the gateway has ended.
    """
    settings = context.of_running()
    count = with_writer(settings, None, Writer.drain_once)
    context.print({"rows": count}, f"{counted(count, 'row')} written.")


@ledger.command()
@common
def verify(context: Context) -> None:
    """Check that no row was changed since it was written.

    It finds rows that were edited, deleted, inserted, moved or cut off. If you do not trust the host, compare the
    newest hash with the gateway's log, in the lines with `the ledger's chain`.

    Exit status: 0 when no row was changed, 1 otherwise.
    """
    settings = context.of_running()
    try:
        anchors = anchor.read(settings.paths.anchor)  # before the ledger, which may grow meanwhile
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    progress = tables.working("hashing every row")
    with progress, open_database(settings, existing=True) as database, snapshot(database) as connection:
        verdict = verified(connection, anchors)
    context.print({**asdict(verdict), "ok": not verdict.findings}, lambda: _show(verdict, zones(settings)("")))
    if verdict.findings:
        sys.exit(1)


def _show(verdict: Verdict, zone: tzinfo) -> None:
    for chain in verdict.chains:
        head = "its anchor is on another host" if chain.anchored is None else f"anchored at {chain.anchored}"
        gone = f", {chain.removed} of them rolled up" if chain.removed else ""
        begun = named_moment(chain.begun_at, zone)
        echo(f"chain {chain.chain}, begun {begun}: {chain.entries} entries{gone}; {head}")
    if verdict.outside:
        echo(f"Older than the chains: {counted(verdict.outside, 'row')}, in which changes cannot be detected.")
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

    Totals stay exact. A row is old if its age exceeds ledger.keep_days. A running gateway replaces old rows by itself;
    while a gateway runs, this command changes nothing.
    """
    settings = context.of_running()
    keep = days or settings.config.ledger.keep_days
    if keep is None:
        raise click.UsageError("Rows are kept for ever: set ledger.keep_days in gateway.yaml, or give --days.")
    now = time.time()
    if dry_run:
        with open_database(settings, existing=True) as database, database.read() as connection:
            old = count_old(connection, keep, now)
    else:
        old = with_writer(settings, keep, Writer.retain_all)
    before = now - keep * DAY_S
    shown = named_moment(before, zones(settings)(""))
    verb = "would become" if dry_run else "became"
    text = f"{counted(old, 'row')} from before {shown} {verb} sums."
    context.print({"rows": old, "before": iso(before), "dry_run": dry_run}, text)


ledger.add_command(old_name(list_unpriced, "unpriced"))
ledger.add_command(old_name(reprice, "reprice"))


@ledger.command()
@common
@click.argument("which", metavar="HOST|WORKER")
@click.option("--yes", is_flag=True, help="Release the money; without --yes, only print how much would be released.")
def release(context: Context, which: str, yes: bool) -> None:
    """Free the money that budgets hold for a lost host.

    With WORKER, only the money for this worker is freed. `thriftgate doctor` lists hosts and workers.

    Use this only if the host's data directory is lost: a gateway that starts again on it frees the money by itself. The
    spend in the lost journal stays unknown, and budgets can be overrun by this amount.
    """
    settings = context.of_running()
    here = {segments.leases_as(lane) for lane in segments.lanes(settings.paths.journal)}
    with open_database(settings, existing=True) as database, database.begin() as connection:
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
    with open_database(settings, existing=True) as database, database.begin() as connection:
        try:
            pseudonyms = Pseudonyms(end_users.secret(settings.paths.pseudonyms))
        except (OSError, ValueError) as error:
            raise click.ClickException(f"{settings.paths.pseudonyms}: {error}") from error
        pseudonym, erased = end_users.forget(connection, end_user, pseudonyms, time.time())
        rows = end_users.rows_of(connection, pseudonym)
    context.print(
        {"pseudonym": pseudonym, "erased": erased, "rows": rows},
        f"{counted(erased, 'name')} erased. Under {pseudonym}: {counted(rows, 'row')}, unchanged.",
    )
