"""`thriftgate context doctor`: shows why requests were not read from a provider's prompt cache, and how much that
cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.quality.context_explain import read_request
from gateway.cli.requests.lines import money
from gateway.cli.zones import begin_of
from gateway.context.differences import first_difference
from gateway.domain.units import usd_text
from gateway.ledger.reports.cache_misses import REMEDIES, Miss, misses, session_rows

_SHOWN = 20


@click.command(short_help="Show why a provider's cache was missed, and the cost.")
@common
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--session", help="Only this session, as x-thriftgate-session or the coding agent names it.")
@click.option("--team", help="Only this team.")
@click.option("--since", default="7d", show_default=True, help="Start: 2026-01-31, or 7d for the last seven days.")
def doctor(options: Context, files: tuple[Path, ...], session: str | None, team: str | None, since: str) -> None:
    """Show why prompts were not read from a provider's cache, and what that cost.

    A miss is a request of a session whose provider read less of the session's previous prompt from its cache than the
    previous prompt was long. The causes come from the ledger, which has no prompts.

    FILES: two request bodies of one session, the older one first. The first difference between them is shown instead,
    such as another order of the tools, or a time in the system prompt.

    \b
    thriftgate context doctor --team search --since 7d
    thriftgate context doctor before.json now.json
    """
    if files:
        _compare(options, files)
        return
    settings, begin = options.of_running(), begin_of(since)
    with open_database(settings, existing=True) as database:
        if team is not None:
            known_team(database, settings, team)
        with database.read() as connection:
            rows = session_rows(connection, since=begin, team=team, session=session)
    found = list(misses(rows))
    options.print(_values(found, len(rows)), lambda: _show(found, len(rows)))


def _compare(options: Context, files: tuple[Path, ...]) -> None:
    if len(files) != 2:
        raise click.UsageError("Give two files, the older request first, or none.")
    before, now = (read_request(file).body for file in files)
    difference = first_difference(before, now)
    options.print({"difference": difference or None}, difference or "The second request repeats all of the first one.")


def _values(found: Sequence[Miss], requests: int) -> dict[str, Any]:
    return {
        "requests": requests,
        "misses": [
            {
                "at": miss.row.at,
                "request": miss.row.request_id,
                "team": miss.row.team,
                "session": miss.row.session,
                "backend": miss.row.backend,
                "cause": miss.cause,
                "expected_tokens": miss.expected_tokens,
                "lost_tokens": miss.lost_tokens,
                "lost_usd": None if miss.lost_pico is None else usd_text(miss.lost_pico),
            }
            for miss in found
        ],
        "causes": {
            cause: {"misses": len(of), "lost_usd": usd_text(sum(miss.lost_pico or 0 for miss in of))}
            for cause in REMEDIES
            if (of := [miss for miss in found if miss.cause == cause])
        },
    }


def _show(found: Sequence[Miss], requests: int) -> None:
    if not found:
        echo(f"{requests} requests in named sessions, and no miss of a provider's prompt cache.")
        return
    table = tables.Table("session", "request", "backend", *tables.prose("cause"), *tables.numbers("tokens", "cost"))
    for miss in sorted(found, key=lambda miss: -(miss.lost_pico or 0))[:_SHOWN]:
        row = miss.row
        cells = row.session, row.request_id, row.backend, miss.cause, f"{miss.lost_tokens:,}", money(miss.lost_pico)
        table.add_row(*cells)
    tables.console(highlight=False).print(table)
    tables.sentences(f"{len(found)} misses in {requests} requests, the dearest {min(_SHOWN, len(found))} above.")
    for cause, explanation in REMEDIES.items():
        of = [miss for miss in found if miss.cause == cause]
        if of:
            lost = money(sum(miss.lost_pico or 0 for miss in of))
            tables.sentences(f"{cause}: {len(of)}, {lost}. {explanation}")
