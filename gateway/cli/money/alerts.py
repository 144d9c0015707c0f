"""`thriftgate alerts`: lists past alerts, tests receivers, acknowledges alerts."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import tzinfo
from typing import Any, TypeVar

import click

from gateway.alerts.alerts import Alerts
from gateway.alerts.delivery.deliveries import GIVE_UP_S, DeliveryResult
from gateway.alerts.delivery.receivers import Answer, Receivers
from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.zones import moment, zones
from gateway.domain.policy import Policy
from gateway.policy.load import load_policies
from gateway.settings.gateway import Settings
from gateway.settings.receivers import Addresses

Result = TypeVar("Result")


@click.group()
def alerts() -> None:
    """List, test and acknowledge alerts; show deliveries that failed."""


@alerts.command("list")
@common
@click.option("--team", help="Only alerts of this team.")
def list_alerts(context: Context, team: str | None) -> None:
    """List the latest alerts with their deliveries, newest first."""
    settings = context.of_running()
    zone_of = zones(settings)
    _check_team(settings, team)
    sent = _with(settings, {}, lambda service: service.sent(team))
    lines = [line for one in sent for line in _listed(one, zone_of(one.team))]
    context.print(_values(sent), "\n".join(lines) or "No alerts yet.")


def _listed(one: DeliveryResult, zone: tzinfo) -> list[str]:
    """The lines about one alert: two lines about the alert itself, and one line about each of its deliveries. The
    alert's id is never broken."""
    if not one.target:
        return [f"{_moment(one.created_at, zone)}  {one.severity}  {one.id}", f"    {_outcome(one, zone)}"]
    tries = f", {one.tries} tries" if one.tries > 1 else ""
    error = f": {one.last_error}" if one.last_error else ""
    return [f"    {one.target}: {_outcome(one, zone)}{tries}{error}"]


@alerts.command("test")
@common
@click.option("--team", required=True, help="The team whose receivers are tested.")
def test_alerts(context: Context, team: str) -> None:
    """Send one alert of each kind to every receiver of a team.

    Prints each receiver's answer. Exit status: 0 when every receiver accepted all alerts, 1 otherwise.
    """
    settings = context.of_running()
    _check_team(settings, team)
    policy, _ = load_policies(settings.policies, settings.config.ceilings).find(team)
    answers = _with(settings, {team: policy}, lambda service: service.test(team))
    values = {target: {kind: asdict(one) for kind, one in kinds.items()} for target, kinds in answers.items()}
    lines = [line for target, kinds in answers.items() for line in _lines(target, kinds)]
    nobody = f"The policy of team {team} names no receiver (alerts.notify, budget.notify)."
    context.print(values, "\n".join(lines) or nobody)
    if any(not one.accepted for kinds in answers.values() for one in kinds.values()):
        sys.exit(1)


@alerts.command()
@common
@click.argument("id")
def acknowledge(context: Context, id: str) -> None:
    """Acknowledge the alert ID, which ends its escalation."""
    team = _with(
        context.of_running(), {}, lambda service: service.acknowledge(id, f"{getpass.getuser()} (command line)")
    )
    if team is None:
        raise click.ClickException(f"There is no alert {id}; `thriftgate alerts list` shows them.")
    context.print({"id": id, "team": team, "acknowledged": True}, f"Acknowledged: {id}")


@alerts.command("dead-letters")
@common
@click.option("--team", help="Only alerts of this team.")
@click.option("--retry", is_flag=True, help="Let a running gateway try these deliveries again.")
def dead_letters(context: Context, team: str | None, retry: bool) -> None:
    """List deliveries that were not accepted within three days.

    Such deliveries are tried again only with --retry.
    """
    settings = context.of_running()
    _check_team(settings, team)
    if retry:
        count = _with(settings, {}, lambda service: service.revive(team))
        context.print({"retried": count}, f"{count} deliveries will be retried.")
        return
    zone_of = zones(settings)
    dead = _with(settings, {}, lambda service: service.dead(team))
    texts, tries = tables.prose("last error"), tables.numbers("tries")
    table = tables.Table("delivery", "team", "receiver", "created", "given up", *tries, *texts)
    for one in dead:
        moments = [_moment(at, zone_of(one.team)) for at in (one.created_at, one.dead_at)]
        table.add_row(one.id, one.team, one.target, *moments, str(one.tries), one.last_error)
    none = f"No delivery was given up, which happens after {GIVE_UP_S / 86400:.0f} days without a 2xx answer."
    context.print(_values(dead), lambda: tables.console().print(table) if dead else echo(none))


def _check_team(settings: Settings, team: str | None) -> None:
    if team is not None:
        with open_database(settings, existing=True) as database:
            known_team(database, settings, team)


def _with(settings: Settings, policies: dict[str, Policy], ask: Callable[[Alerts], Awaitable[Result]]) -> Result:
    with open_database(settings, existing=True) as database:
        addresses = Addresses(lambda: settings.known_receivers)
        service = Alerts(database, lambda: policies, receivers=Receivers(addresses=addresses))

        async def asked() -> Result:
            await service.open()
            try:
                return await ask(service)
            finally:
                await service.aclose()

        return asyncio.run(asked())


def _lines(target: str, kinds: dict[str, Answer]) -> list[str]:
    """The lines about one receiver. There is a single line if the receiver gave the same answer to all alerts."""
    replies = {("accepted" if one.accepted else "not accepted") + f": {one.said}" for one in kinds.values()}
    if len(replies) == 1:
        return [f"{target}: {replies.pop()} ({len(kinds)} alerts: {', '.join(kinds)})"]
    return [f"{target} {kind}: {'' if one.accepted else 'not '}accepted: {one.said}" for kind, one in kinds.items()]


def _values(sent: list[DeliveryResult]) -> list[dict[str, Any]]:
    return [asdict(one) for one in sent]


def _outcome(one: DeliveryResult, zone: tzinfo) -> str:
    if one.dead_at is not None:
        return f"given up {_moment(one.dead_at, zone)}"
    if one.target:
        return f"accepted {_moment(one.delivered_at, zone)}" if one.delivered_at else "in progress"
    return f"acknowledged by {one.acknowledged_by}" if one.acknowledged_at else "not acknowledged"


def _moment(at: float | None, zone: tzinfo) -> str:
    return "–" if at is None else moment(at, zone, "%Y-%m-%d %H:%M:%S")
