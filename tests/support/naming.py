"""Names of a test's own, so that a test that failed can run again on the gateway that its module shares."""

from __future__ import annotations

import secrets

RUNS = 3
"""How often a test runs at most: a failed test runs again, at most twice."""


def unique(stem: str) -> str:
    """A name that begins with `stem` and that nothing else has."""
    return f"{stem}-{secrets.token_hex(4)}"


def for_each_run(policies: dict[str, str]) -> dict[str, str]:
    """Each team's policy once per run of a test, for the teams `team-1`, `team-2` …, so each run has its own budget."""
    return {f"{team}-{run}": text for team, text in policies.items() for run in range(1, RUNS + 1)}
