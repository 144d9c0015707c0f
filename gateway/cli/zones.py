"""Formats times and durations for people. Times are in the time zone of the team to which they belong."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

import click

from gateway.domain.money.windows import zone_named
from gateway.ledger.reports.period import parse_when
from gateway.policy.load import load_policies
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings

ZoneOf = Callable[[str], tzinfo]
"""A function from a team to its time zone."""


def zones(settings: Settings) -> ZoneOf:
    """The time zones in the policies (`timezone`), as a function of the team's name. A team without a policy, and the
    empty name, have the zone of the default policy. If the policies have a mistake, all zones are UTC."""
    try:
        policies = load_policies(settings.policies, settings.config.ceilings)
    except ConfigError:
        return lambda team: UTC
    return lambda team: zone_named(policies.find(team)[0].timezone)


def moment(at: float, zone: tzinfo, form: str = "%Y-%m-%d %H:%M") -> str:
    """Format a time. If the zone is not UTC, its short name is added."""
    shown = datetime.fromtimestamp(at, zone)
    return shown.strftime(form if zone is UTC else f"{form} %Z")


def named_moment(at: float, zone: tzinfo) -> str:
    """Format a time, always with the name of the zone."""
    return moment(at, zone) + (" UTC" if zone is UTC else "")


def begin_of(since: str) -> float:
    """Convert the value of `--since`, a date or an age such as 7d, to Unix seconds. Raises UsageError."""
    try:
        return parse_when(since, time.time())
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def span(seconds: float) -> str:
    """Format a duration in its largest unit: `16 min`."""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
