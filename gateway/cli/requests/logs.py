"""`thriftgate logs`: lists requests from the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import get_args

import click
import orjson

from gateway.cli.echo import echo, echo_json
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.requests.lines import line
from gateway.cli.zones import zones
from gateway.domain.record import CacheResult
from gateway.ledger.reports.period import parse_when
from gateway.ledger.reports.requests import Filter, as_object, recent
from gateway.ledger.rows import Row
from gateway.state.sql.database import Database

LOOK_S = 0.5
LATE_S = 900.0
"""Maximum seconds between the start of a request and the time at which its row is stored. (A row is stored when its
attempt ends.)"""
MOST = 10_000


@click.command()
@common
@click.option("--follow", "-f", is_flag=True, help="Also show new requests as they arrive, until Ctrl-C.")
@click.option("--team", help="Only this team.")
@click.option("--backend", help="Only this backend.")
@click.option("--model", help="Only this model name, as the application sent it.")
@click.option("--failed", is_flag=True, help="Only attempts that did not succeed.")
@click.option("--key", help="Only the key of this id.")
@click.option("--session", help="Only the session of this id, as the ledger has it.")
@click.option("--cache", type=click.Choice(get_args(CacheResult)), help="Only requests with this result of the cache.")
@click.option("--status", type=int, help="Only attempts with this HTTP status.")
@click.option("--since", help="Start: 2026-01-31T12:00, or 15m for the last 15 minutes.")
@click.option(
    "--limit",
    "-n",
    "count",
    type=click.IntRange(0, MOST),
    default=20,
    show_default=True,
    help="Maximum number of past requests.",
)
def logs(
    context: Context,
    follow: bool,
    team: str | None,
    backend: str | None,
    model: str | None,
    failed: bool,
    key: str | None,
    session: str | None,
    cache: str | None,
    status: int | None,
    since: str | None,
    count: int,
) -> None:
    """Show requests of all workers and hosts, one line for each attempt or cached answer.

    Times are in the time zone of the request's team (`timezone` in its policy; UTC if there is none).

    The lines come from the ledger, about a second after an answer ends. Requests that were refused before a backend was
    called are in the access log only (standard output of `serve`). --json prints one object per line.

    \b
    thriftgate logs --team search --failed --since 1h
    thriftgate logs -f
    """
    settings = context.of_running()
    zone_of = zones(settings)
    try:
        begin = parse_when(since, time.time(), zone_of(team or "")) if since else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error
    wanted = Filter(team, backend, model, failed, begin, key, session, cache, status)

    def show(row: Row) -> None:
        if context.as_json:
            echo_json(orjson.dumps(as_object(row)))
        else:
            echo(line(row, zone_of(row.team)))

    with open_database(settings, existing=True) as database, suppress(KeyboardInterrupt):
        if team is not None:
            known_team(database, settings, team)
        found = rows(database, wanted, count)
        for row in found:
            show(row)
        if not found and not follow:
            echo("No request is recorded for these options.", err=True)
        if follow:
            for row in following(database, wanted, time.sleep):
                show(row)


def rows(database: Database, wanted: Filter, count: int) -> list[Row]:
    """The last `count` rows, oldest row first."""
    with database.read() as connection:
        return recent(connection, wanted, count)[::-1]


def following(database: Database, wanted: Filter, sleep: Callable[[float], None]) -> Iterator[Row]:
    """Yield the rows that are stored from now on, as soon as they arrive. Never ends."""
    seen: dict[str, float] = {row.id: row.at for row in _late(database, wanted)}
    while True:
        sleep(LOOK_S)
        for row in _late(database, wanted):
            if row.id not in seen:
                seen[row.id] = row.at
                yield row
        oldest = time.time() - LATE_S
        seen = {id: at for id, at in seen.items() if at >= oldest}


def _late(database: Database, wanted: Filter) -> list[Row]:
    since = time.time() - LATE_S
    with database.read() as connection:
        found = recent(connection, replace(wanted, since=since), MOST)
    return found[::-1]
