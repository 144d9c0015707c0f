"""Tells the user that a team has no policy of its own, because the name is often mistyped."""

from __future__ import annotations

from gateway.cli.echo import echo
from gateway.cli.options import Context
from gateway.policy.load import DEFAULT, load_policies
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings
from gateway.settings.remedies import did_you_mean


def note_default_policy(context: Context, settings: Settings, team: str) -> None:
    """Print a note on standard error if no policy names the team. If the files have a mistake, prints nothing."""
    try:
        known = load_policies(context.policy_folders(settings), settings.config.ceilings).policies
    except ConfigError:
        return
    if team not in known:
        near = did_you_mean(team, sorted(known), "")
        advice = f" {near.capitalize()}" if near else ""
        echo(f"Note: team {team} has no policy of its own, so the policy of team {DEFAULT} applies.{advice}", err=True)
