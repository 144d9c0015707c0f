"""`thriftgate keys`: manages API keys."""

from __future__ import annotations

import time
from typing import Any

import click

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.teams.client_settings import CLIENTS, Connection
from gateway.cli.teams.default_policy import note_default_policy
from gateway.cli.zones import ZoneOf, moment, zones
from gateway.domain.units import parse_duration
from gateway.policy import keys as store
from gateway.settings.running import running_on


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys.

    A key is shown once, when it is made; only its SHA-256 digest is stored. A running gateway applies every change
    within a second.
    """


@keys.command()
@common
@click.option("--team", required=True, help="The team that pays; its policy applies.")
@click.option("--name", default="", help="A note on which app or person has the key.")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(store.SCOPES), help="Default: inference. Repeatable."
)
@click.option(
    "--allowed-model",
    "allowed_models",
    multiple=True,
    help="The key may use only backends of this name, model or tier, if the policy allows them. Repeatable.",
)
@click.option("--expires", help="Lifetime, e.g. 90d; default: until revoked.")
def create(
    context: Context,
    team: str,
    name: str,
    scopes: tuple[str, ...],
    allowed_models: tuple[str, ...],
    expires: str | None,
) -> None:
    """Make a key for a team.

    \b
    thriftgate keys create --team search --name "search backend" --expires 90d
    """
    expires_at = time.time() + _duration(expires, "--expires") if expires else None
    try:
        store.check_team(team)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--team") from error
    settings = context.of_running(writes=True)
    with open_database(settings) as database:
        try:
            secret, key = store.create(
                database,
                team,
                name=name,
                scopes=scopes or ("inference",),
                expires_at=expires_at,
                allowed_models=allowed_models or None,
            )
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--allowed-model") from error
    note_default_policy(context, settings, team)
    values = {"key": secret, "id": key.id, "team": team, "scopes": sorted(key.scopes), "expires_at": expires_at}
    context.print(
        {**values, "allowed_models": sorted(allowed_models) or None},
        f"{secret}\n\nThis is key {key.id} of team {team}. It is shown only now; keep it with your secrets.",
    )
    gateway = running_on(settings.paths.data)
    if gateway is not None and "inference" in key.scopes:
        lines = CLIENTS["env"].lines(Connection(gateway.url, secret, "auto"))
        echo(f"\nTo use it in a shell:\n{lines}", err=True)


@keys.command("list")
@common
@click.option("--team", help="Only keys of this team.")
def list_(context: Context, team: str | None) -> None:
    """List all keys, newest first. Secrets are not stored and cannot be shown."""
    settings = context.of_running()
    with open_database(settings, existing=True) as database:
        if team is not None:
            known_team(database, settings, team)
        rows = store.listing(database, team)
    context.print(rows, lambda: tables.console().print(_table(rows, zones(settings))) if rows else echo("No keys yet."))


@keys.command()
@common
@click.argument("key_id")
@click.option("--grace", default="0s", show_default=True, help="How long the old secret keeps working, e.g. 1h.")
def rotate(context: Context, key_id: str, grace: str) -> None:
    """Replace a key's secret. Team, scopes, expiry and lineage stay the same.

    A lineage is a key with all keys that replaced it. Its budgets, limits and reports continue unchanged. Revoking the
    old or the new key revokes both.
    """
    with open_database(context.of_running(writes=True), existing=True) as database:
        made = store.rotate(database, key_id, grace_s=0.0 if grace in ("0", "0s") else _duration(grace, "--grace"))
    if made is None:
        raise click.ClickException(f"There is no valid key {key_id}; `thriftgate keys list` shows them.")
    secret, key = made
    context.print(
        {"key": secret, "id": key.id, "team": key.team, "replaces": key_id, "lineage": key.lineage},
        f"{secret}\n\nThis is key {key.id} of team {key.team}; {key_id} ends in {grace}. Reports continue "
        f"under {key.lineage}.",
    )


@keys.command()
@common
@click.argument("key_id", required=False)
@click.option("--team", help="Revoke all keys of this team instead.")
@click.option("--yes", is_flag=True, help="With --team: revoke the keys instead of only listing them.")
def revoke(context: Context, key_id: str | None, team: str | None, yes: bool) -> None:
    """Revoke a key and its whole lineage, or all keys of a team.

    \b
    thriftgate keys revoke --team search --yes
    """
    if (key_id is None) == (team is None):
        raise click.UsageError("Name one key, or a team with --team.")
    settings = context.of_running(writes=True)
    with open_database(settings, existing=True) as database:
        if team is not None:
            known_team(database, settings, team)
        if team is not None and not yes:
            ids = store.living(database, team)
            raise click.ClickException(
                f"This would revoke {len(ids)} keys of team {team}; add --yes to do it: {' '.join(ids)}"
            )
        ended = store.revoke(database, key_id or "") if team is None else store.revoke_team(database, team)
    if team is not None:
        context.print({"team": team, "ended": ended}, f"{len(ended)} keys of team {team} are revoked.")
        return
    if not ended:
        raise click.ClickException(f"There is no valid key {key_id}; `thriftgate keys list` shows them.")
    others = [each for each in ended if each != key_id]
    too = f", and so are {', '.join(others)} of its lineage" if others else ""
    context.print({"id": key_id, "revoked": True, "ended": ended}, f"Key {key_id} is revoked{too}.")


def _duration(text: str, option: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def _table(rows: list[dict[str, Any]], zone_of: ZoneOf) -> tables.Table:
    rotated = any(row["lineage"] not in ("", row["id"]) for row in rows)
    table = tables.Table(
        "key", "team", *tables.prose("name", "scopes"), "created", "ends", *(["lineage"] if rotated else [])
    )
    for row in rows:
        zone = zone_of(row["team"])
        ends = [at for at in (row["expires_at"], row["revoked_at"]) if at]
        lineage = "" if row["lineage"] in ("", row["id"]) else row["lineage"]
        cells = [row["id"], row["team"], row["name"], row["scopes"].replace(",", ", ")]
        cells += [moment(row["created_at"], zone, "%Y-%m-%d").split()[0], moment(min(ends), zone) if ends else "–"]
        table.add_row(*cells, *([lineage] if rotated else []))
    return table
