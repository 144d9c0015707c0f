"""`thriftgate policy replay`: shows what recorded requests would have cost under other rules."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gateway.backends.providers.discover import backends_of
from gateway.cli import tables
from gateway.cli.echo import counted, echo
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.cli.teams.redecide import Redecider
from gateway.cli.teams.replayed import Replay, as_object, increase, replayed, teams
from gateway.domain.policy import Policy
from gateway.domain.units import cents
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.period import parse_when
from gateway.ledger.store.sums import snapshot
from gateway.policy.inherit import DEFAULT
from gateway.policy.load import PolicySet, load_policies
from gateway.policy.proposed import load_proposed
from gateway.routing.loading import followed
from gateway.settings.gateway import Settings
from gateway.settings.running import local_model_url


@click.command("replay", short_help="Price past requests under other rules.")
@common
@click.argument("file", metavar="NEW.yaml", type=click.Path(path_type=Path))
@click.option("--since", default="30d", show_default=True, help="Start: 2026-01-31, or 7d for the last seven days.")
@click.option("--until", help="End, in the same form; default: now.")
@click.option(
    "--max-increase", type=float, metavar="PERCENT", help="Exit status 1 if the cost may rise by more than this."
)
def replay(context: Context, file: Path, since: str, until: str | None, max_increase: float | None) -> None:
    """Price the ledger's requests under the rules in NEW.yaml, without calling a backend.

    NEW.yaml is a policy file. Each of its teams is compared with the policy that the team has now; a base in
    NEW.yaml is compared for all teams that extend this base. Prints dollars as a range, requests that move to another
    backend or are refused, budgets that would have been spent, and how many requests could not be decided again, with
    the reasons. For requests that could not be decided again, the recorded cost counts as the old and as the new cost.

    \b
    thriftgate policy replay policies/search.yaml --since 30d --max-increase 5

    Exit status: 1 if the higher end of the range is above --max-increase, 0 otherwise.
    """
    now = time.time()
    try:
        begin, end = parse_when(since, now), now if until is None else parse_when(until, now)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    settings = context.of_running()
    present = load_policies(settings.policies, settings.config.ceilings)
    new = load_proposed(file, settings.policies, settings.config.ceilings)
    with open_database(settings, existing=True) as database, snapshot(database) as connection:
        pairs = _pairs(present, new, teams(connection, begin, end))
        found = replayed(connection, _redecider(settings), pairs, begin, end) if pairs else []
    context.print(as_object(found), lambda: _show(found))
    rise = increase(found)
    if max_increase is not None and (rise is None or rise > max_increase):
        rises = "from nothing" if rise is None else f"by up to {rise:.1f}%"
        echo(f"The cost may rise {rises}, more than {max_increase:g}%.", err=True)
        sys.exit(1)


def _pairs(present: PolicySet, new: Mapping[str, Policy], active: list[str]) -> dict[str, tuple[Policy, Policy]]:
    """The teams whose policy is replaced: team → (present policy, new policy). A new default policy applies to all
    `active` teams without a policy of their own."""
    found = {team: (present.find(team)[0], policy) for team, policy in new.items()}
    if default := new.get(DEFAULT):
        for team in active:
            if team not in present.policies and team not in new:
                found[team] = present.find(team)[0], default.model_copy(update={"team": team})
    return found


def _redecider(settings: Settings) -> Redecider:
    prices = PriceBook.of(settings)
    found = asyncio.run(backends_of(settings.config, local_model_url(settings.paths)))
    backends = [prices.complete(backend) for backend in found]
    return Redecider(backends, prices, followed(settings.config.routing.artefact), settings.config.closed_to)


def _show(found: list[Replay]) -> None:
    if not found:
        echo("No team of this file has requests in that time.")
        return
    figures = ("requests", "decided", "moved", "refused", "USD now", "USD then", "change")
    table = tables.Table("team", *tables.numbers(*figures))
    for one in found:
        then = cents(one.low_pico)
        if one.high_pico != one.low_pico:
            then += f" to {cents(one.high_pico)}"
        change = "–" if one.increase is None else f"{one.increase:+.1f}%"
        table.add_row(
            one.team, str(one.requests), str(one.decided), str(one.moved), str(one.refused.total()),
            cents(one.now_pico), then, change,
        )  # fmt: skip
    tables.console().print(table)
    for one in found:
        for line in _lines(one):
            tables.sentences(f"{one.team}: {line}")
    tables.sentences(*as_object(())["method"])


def _lines(one: Replay) -> list[str]:
    moves = [
        f"Moves from {old} to {new}: {counted(count, 'request')}." for (old, new), count in one.routes.most_common()
    ]
    refused = [f"Refused ({code}): {counted(count, 'request')}." for code, count in one.refused.items()]
    unknown = [f"Not decided again: {counted(count, 'request')}; {why}." for why, count in one.unknown.items()]
    if one.rolled_up:
        unknown.append(f"Only in sums, and in no figure here: {counted(one.rolled_up, 'request')}.")
    return [*moves, *refused, *unknown, *_budgets("now", one.now), *_budgets("then", one.then)]


def _budgets(when: str, meters: list[Any]) -> list[str]:
    found = []
    for values in (meter.as_object() for meter in meters):
        if values["spent_at"] is not None:
            what = "are refused" if values["hard"] else "come"
            found.append(
                f"budget {values['budget']} ({when}) is spent at {values['spent_at']}; "
                f"{counted(values['requests_after'], 'request')}, {values['usd_after']} USD, {what} after that."
            )
    return found
