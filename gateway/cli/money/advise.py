"""`thriftgate advise`: shows which parts of the cost of a team's input may be avoidable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.requests.lines import money
from gateway.cli.zones import begin_of
from gateway.ledger.reports import advice
from gateway.ledger.reports.advice import Finding, Overview
from gateway.ledger.reports.formats import dollars
from gateway.responses import advice as stored_advice

_SHOWN = 20
_NO_PROMPTS = (
    "The ledger has no prompts. So tools and output limits are known only from responses that a team stores "
    "(data.store_prompts), and these are requests to /v1/responses only."
)


@click.command(short_help="Show which parts of the input's cost may be avoidable.")
@common
@click.option("--team", help="Only this team.")
@click.option("--since", default="30d", show_default=True, help="Start: 2026-01-31, or 7d for the last seven days.")
def advise(options: Context, team: str | None, since: str) -> None:
    """Show which parts of the input's cost may be avoidable, in dollars a month, most expensive first.

    From the ledger: misses of providers' prompt caches by cause, and recurring beginnings of sessions that were not
    read from the cache. From stored responses, for teams with data.store_prompts: tools that no answer called, output
    limits that are too large, and recurring instructions. The report also says what it could not know.

    \b
    thriftgate advise --team search --since 30d
    """
    settings, begin = options.of_running(), begin_of(since)
    with open_database(settings, existing=True) as database:
        if team is not None:
            known_team(database, settings, team)
        with database.read() as connection:
            views, found = advice.advise(connection, begin, team)
            stored = {view.team: stored_advice.read(connection, view.team, begin) for view in views}
    for view in views:
        found += stored_advice.advise(view, stored[view.team])
    found.sort(key=lambda finding: -finding.month_pico)
    counts = {name: seen.responses for name, seen in stored.items()}
    values = _values(views, found, counts)
    options.print(values, lambda: _show(values, found))


def _values(views: Sequence[Overview], found: Sequence[Finding], stored: dict[str, int]) -> dict[str, Any]:
    return {
        "teams": [
            {
                "team": view.team,
                "requests": view.requests,
                "days": round((view.end - view.begin) / advice.DAY_S, 2),
                "cost_usd_month": dollars(round(view.cost * view.per_month)),
                "input_usd_month": dollars(round(view.input_cost * view.per_month)),
                "recurring_cost_share": _share(view.repeated_cost, view.input_cost),
                "cacheable_share": _share(view.repeated_tokens, view.input_tokens),
                "read_share": _share(view.read_tokens, view.input_tokens),
                "stored_responses": stored[view.team],
            }
            for view in views
        ],
        "findings": [
            {
                "team": finding.team,
                "kind": finding.kind,
                "subject": finding.subject,
                "requests": finding.requests,
                "usd_month": dollars(round(finding.month_pico)),
                "text": finding.text,
            }
            for finding in found
        ],
        "unknown": list(_unknown(views, stored)),
    }


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _unknown(views: Sequence[Overview], stored: dict[str, int]) -> list[str]:
    """Sentences about the things that could not be examined."""
    found = []
    for view in views:
        if share := _share(view.nameless_cost, view.input_cost):
            found.append(
                f"Team {view.team}: {share:.0%} of the input's cost is in requests without a session name "
                "(x-thriftgate-session). What they repeat is not known."
            )
        if view.unpriced:
            found.append(f"Team {view.team}: {view.unpriced} calls have no known price.")
        if view.end - view.begin < advice.DAY_S:
            found.append(f"Team {view.team}: the calls cover less than a day. The figures for a month assume one day.")
    if sum(view.requests for view in views) >= advice.MOST_ROWS:
        found.append(f"Only the newest {advice.MOST_ROWS:,} calls were read.")
    if not all(stored.values()) or not stored:
        found.append(_NO_PROMPTS)
    return found


def _show(values: dict[str, Any], found: Sequence[Finding]) -> None:
    if not values["teams"]:
        echo("No answered call in this time.")
        return
    table = tables.Table("team", *tables.numbers("input a month", "recurring", "cacheable", "read from cache"))
    for one in values["teams"]:
        shares = ["–" if one[name] is None else f"{one[name]:.0%}" for name in _SHARES]
        table.add_row(one["team"], _usd(one["input_usd_month"]), *shares)
    console = tables.console(highlight=False)
    console.print(table)
    tables.sentences(
        "recurring: share of the input's cost for tokens that repeat the session's previous prompt.",
        "cacheable: these tokens as a share of all input tokens.",
        *(_sentence(finding) for finding in found[:_SHOWN]),
        *(() if found else ("Nothing avoidable was found.",)),
        *(f"Not known: {sentence}" for sentence in values["unknown"]),
    )


def _sentence(finding: Finding) -> str:
    head = f"{money(round(finding.month_pico))} a month, team {finding.team}: {finding.kind}, {finding.subject} "
    return f"{head}({finding.requests} requests). {finding.text}"


_SHARES = ("recurring_cost_share", "cacheable_share", "read_share")


def _usd(amount: str) -> str:
    return money(round(float(amount) * 10**12))
