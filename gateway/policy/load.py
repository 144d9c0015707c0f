"""policies/ → one immutable set, swapped whole; a bad reload keeps the old one and says so."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.domain.policy import Policy
from gateway.policy.schema import above_ceilings, under_ceilings
from gateway.policy.watch import LOOK_S, changes, dates
from gateway.settings.files import ConfigError, load
from gateway.settings.gateway import Ceilings

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The team whose policy applies to every team without a file of its own."""


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All policies at one moment."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    epochs: Mapping[str, str] = field(default_factory=dict)

    def find(self, team: str) -> tuple[Policy, str]:
        """The team's own policy or the default one under the team's name, with its fingerprint."""
        if team in self.policies:
            return self.policies[team], self.epochs[team]
        default = self.policies.get(DEFAULT) or Policy(team=DEFAULT)
        return default.model_copy(update={"team": team}), self.epochs.get(DEFAULT, "")


def load_policies(folders: Sequence[Path], ceilings: Ceilings) -> PolicySet:
    """Read and validate every `*.yaml` in `folders`. Raises ConfigError naming every mistake in every file."""
    problems: list[str] = []
    found: dict[str, Policy] = {}
    origin: dict[str, Path] = {}
    for path in (path for folder in folders for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])):
        try:
            policy = load(path, Policy)
        except ConfigError as error:
            problems += error.problems
            continue
        problems += [f"{path}: {problem}" for problem in above_ceilings(policy, ceilings)]
        if policy.team in found:
            problems.append(f"{path}: team: {policy.team!r} has its policy in {origin[policy.team]} already; keep one")
        found[policy.team], origin[policy.team] = policy, path
    if problems:
        raise ConfigError(problems)
    return _build(found, ceilings)


def _build(found: Mapping[str, Policy], ceilings: Ceilings) -> PolicySet:
    policies = {DEFAULT: under_ceilings(Policy(team=DEFAULT), ceilings)}
    policies |= {team: under_ceilings(policy, ceilings) for team, policy in found.items()}
    return PolicySet(policies, {team: _fingerprint(policy) for team, policy in policies.items()})


def _fingerprint(policy: Policy) -> str:
    return hashlib.sha256(
        policy.model_dump_json(exclude={"budget", "limits", "alerts", "pacing"}).encode()
    ).hexdigest()[:16]


class Policies:
    """The set in force. `on_change` hears of every successful swap."""

    def __init__(self, folders: Sequence[Path], ceilings: Ceilings) -> None:
        self._folders = tuple(folders)
        self._ceilings = ceilings
        self._listeners: list[Callable[[], None]] = []
        self._reloads = self._failures = 0
        self._dates = dates(folders)  # before they are read: what changes meanwhile is read again
        self.current = load_policies(folders, ceilings)
        self.problem = ""
        """Why the last reload was refused; empty when it was not."""

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def reload(self) -> bool:
        """Swap to what the files say now; on a mistake keep the old set. True when swapped."""
        try:
            fresh = await asyncio.to_thread(load_policies, self._folders, self._ceilings)
        except ConfigError as error:
            self._failures += 1
            self.problem = str(error)
            log.error("policies not reloaded, the last good ones stay in force:\n%s", error)
            return False
        self.current, self.problem = fresh, ""
        self._reloads += 1
        for listener in self._listeners:
            listener()
        log.info("policies reloaded: %s", ", ".join(sorted(fresh.policies)))
        return True

    async def adopt(self, ceilings: Ceilings) -> None:
        """Hold the teams to other ceilings from now on."""
        self._ceilings = ceilings
        await self.reload()

    async def watch(self, look_s: float = LOOK_S) -> None:
        """Reload whenever a file in the folders changes, for ever; look so often."""
        if not self._folders:
            return
        async for _ in changes(self._folders, self._dates, look_s):
            await self.reload()

    def stats(self) -> dict[str, int]:
        return {
            "policies": len(self.current.policies),
            "reloads": self._reloads,
            "reload_failures": self._failures,
            "stale": int(bool(self.problem)),
        }
