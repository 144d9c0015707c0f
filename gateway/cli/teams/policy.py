"""`thriftgate policy`: shows the rules that apply to a team, and tests new rules."""

from __future__ import annotations

from typing import Any

import click
import orjson

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.options import Context, common
from gateway.cli.teams.policy_replay import replay
from gateway.policy.effective import Value, effective
from gateway.policy.keys import check_team

_SECONDS = ("ttl", "escalate_after", "hold_for")


@click.group()
def policy() -> None:
    """Show teams' policies, and replay past requests under other rules."""


policy.add_command(replay)


@policy.command(short_help="Show a team's policy and where each value stands.")
@common
@click.argument("team")
@click.option("--effective", "whole", is_flag=True, help="Also show the keys that no file sets, with their defaults.")
def show(context: Context, team: str, whole: bool) -> None:
    """Show the policy of TEAM: each key with its value, and the file and line that set it.

    A value comes from the team's own file, from the base that it `extends`, from the operator's ceilings, or from the
    built-in defaults.

    \b
    thriftgate policy show search --effective
    """
    try:
        check_team(team)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="TEAM") from error
    settings = context.of_running()
    owner, values = effective(context.policy_folders(settings), settings.config.ceilings, team)
    shown = [each for each in values if whole or each.is_set]
    rows = [{"key": each.key, "value": each.value, "from": each.origin} for each in shown]
    context.print({"team": team, "policy_of": owner, "values": rows}, lambda: _show(team, owner, shown))


def _show(team: str, owner: str, values: list[Value]) -> None:
    if owner != team:
        echo(f"Team {team} has no policy of its own; the policy of team {owner} applies.")
    if not values:
        echo("No file sets a key; --effective shows the defaults.")
        return
    table = tables.Table("key", *tables.prose("value"), "from")
    for each in values:
        table.add_row(each.key, _text(each.key, each.value), each.origin)
    tables.console(highlight=False).print(table)


def _text(key: str, value: Any) -> str:
    if key.rpartition(".")[2] in _SECONDS and isinstance(value, float):
        return f"{value:g}s"
    return value if isinstance(value, str) else orjson.dumps(value).decode()
