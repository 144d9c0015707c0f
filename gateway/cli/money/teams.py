"""Refuses an unknown --team in commands that show or change existing data, because it is probably mistyped."""

from __future__ import annotations

import click

from gateway.ledger.reports.report import teams
from gateway.policy.keys import listing
from gateway.policy.load import load_policies
from gateway.settings.gateway import Settings
from gateway.settings.remedies import did_you_mean
from gateway.state.sql.database import Database


def known_team(database: Database, settings: Settings, team: str) -> None:
    """Raises UsageError if the team has neither a policy nor a key nor spend."""
    known = set(load_policies(settings.policies, settings.config.ceilings).policies)
    with database.read() as connection:
        known |= {*teams(connection), *(row["team"] for row in listing(database))}
    if team not in known:
        near = did_you_mean(team, sorted(known), f"there are {', '.join(sorted(known))}")
        raise click.UsageError(f"There is no team {team!r}: it has no policy, no key and no spend; {near}")
