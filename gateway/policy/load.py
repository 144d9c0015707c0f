"""Loads the folder policies/ into one immutable object, which is always replaced as a whole. While a file is invalid,
the last valid policy of each of its teams applies."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.domain.policy import HedgingPolicy, Policy, without_later
from gateway.policy.inherit import DEFAULT, Part, merge
from gateway.policy.kept import kept
from gateway.policy.schema import above_ceilings, under_ceilings
from gateway.policy.sources import Sources, policy_files, read_sources
from gateway.policy.watch import LOOK_S, changes, dates
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Ceilings
from gateway.settings.renamed_keys import OldName

log = logging.getLogger(__name__)

__all__ = ["DEFAULT", "Policies", "PolicySet", "load_policies", "reload_policies"]

_OldNames = Mapping[Path, tuple[OldName, ...]]
Files = Mapping[Path, Mapping[str, Policy]]
"""File → its teams' policies, before the operator's ceilings."""


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All valid policies at one moment."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    epochs: Mapping[str, str] = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    bases: Mapping[str, Path] = field(default_factory=dict)
    """Name of a base → its file. A base whose file cannot be read at present is included."""
    old_names: _OldNames = field(default_factory=dict, compare=False)
    """File → the old names of keys that it uses."""

    def find(self, team: str) -> tuple[Policy, str]:
        """Find the policy of a team. Returns the policy and its fingerprint. A team without a policy gets the default
        policy under the team's name."""
        if team in self.policies:
            return self.policies[team], self.epochs[team]
        default = self.policies.get(DEFAULT) or Policy(team=DEFAULT)
        return default.model_copy(update={"team": team}), self.epochs.get(DEFAULT, "")


def load_policies(folders: Sequence[Path], ceilings: Ceilings) -> PolicySet:
    """Read and validate all `*.yaml` files in `folders`. Raises ConfigError with all mistakes in all files."""
    fresh, problems = reload_policies(folders, ceilings, PolicySet())
    if problems:
        raise ConfigError(problems)
    return fresh


def reload_policies(folders: Sequence[Path], ceilings: Ceilings, last: PolicySet) -> tuple[PolicySet, tuple[str, ...]]:
    """Read all files again. Returns the new policies and all mistakes. A team keeps its policy in `last` if its policy
    or its base has a mistake."""
    found = read_sources(folders, last.files)
    before = dict(last.bases)
    before.update((DEFAULT, path) for path, teams in last.files.items() if DEFAULT in teams)
    lost = {name: path for name, path in before.items() if path in found.broken and name not in found.bases}
    claims = _Claims(last.files)
    usable = found.usable()
    for path, part in found.teams:
        blocked = part.extends in found.unusable or part.extends in lost
        policy = None if blocked else _policy(part, usable, ceilings, found.problems)
        claims.add(path, part, policy)
    for path in found.broken:
        claims.keep(path)
    old = {path: tuple(each) for path, each in _old_names(found).items()}
    files = claims.settled(found.problems)
    bases = {name: path for name, (path, _) in found.bases.items()} | lost
    fresh = _build(files, ceilings, old, bases)
    # A mistake in a base is found again for each team that extends the base, but is reported once.
    return fresh, tuple(dict.fromkeys(found.problems))


def _old_names(found: Sources) -> dict[Path, list[OldName]]:
    names: dict[Path, list[OldName]] = {}
    for path, part in [*found.teams, *(each for each in found.bases.values() if each[1].is_base)]:
        if old := part.old_names():
            names.setdefault(path, []).extend(old)
    return names


def _policy(part: Part, bases: Mapping[str, Part], ceilings: Ceilings, problems: list[str]) -> Policy | None:
    """Validate one team's policy. If it is invalid, returns None and adds the reasons to `problems`."""
    try:
        merged = merge(part, bases)
        policy = merged.policy()
    except ConfigError as error:
        problems += error.problems
        return None
    above = [merged.place(path) + sentence for path, sentence in above_ceilings(policy, ceilings)]
    problems += above
    return None if above else policy


class _Claims:
    """Assigns each team to one file during a reload. If several files have the same team, the file that had it before
    keeps it."""

    def __init__(self, last: Files) -> None:
        self._last = last
        self._claims: dict[str, dict[Path, Policy]] = {}
        self._places: dict[tuple[str, Path], str] = {}

    def add(self, path: Path, part: Part, policy: Policy | None) -> None:
        """Assign the team of `part` to the file `path`. `policy`: the team's new policy; None if it is invalid, and
        then the previous policy stays."""
        self._places[part.name, path] = part.place(("team",))
        before = self._last.get(path, {})
        if policy is not None:
            self._claims.setdefault(policy.team, {})[path] = policy
        elif part.name in before:
            self._claims.setdefault(part.name, {})[path] = before[part.name]
        elif not part.document.above:
            self.keep(path)

    def keep(self, path: Path) -> None:
        """Keep the previous policies of the file `path`, except those of teams that got a new policy from this file."""
        for team, policy in self._last.get(path, {}).items():
            self._claims.setdefault(team, {}).setdefault(path, policy)

    def settled(self, problems: list[str]) -> Files:
        files: dict[Path, dict[str, Policy]] = {}
        for team, claim in self._claims.items():
            before = [path for path in claim if team in self._last.get(path, {})]
            owner = next(iter(claim)) if len(claim) == 1 else next(iter(before), None)
            if owner is not None:
                files.setdefault(owner, {})[team] = claim[owner]
            first = owner or min(claim)
            for path in sorted(set(claim) - {first}):
                place = self._places.get((team, path), f"{path}: team: ")
                problems.append(f"{place}{team!r} has its policy in {first} already; keep one")
            for path in set(claim) - {owner}:
                for old, policy in self._last.get(path, {}).items():
                    if old not in self._claims:
                        files.setdefault(path, {})[old] = policy
        return files


def _build(files: Files, ceilings: Ceilings, old_names: _OldNames, bases: Mapping[str, Path]) -> PolicySet:
    policies = {DEFAULT: under_ceilings(Policy(team=DEFAULT), ceilings)}
    policies |= {team: under_ceilings(policy, ceilings) for teams in files.values() for team, policy in teams.items()}
    epochs = {team: _fingerprint(policy) for team, policy in policies.items()}
    return PolicySet(policies, epochs, files, bases, old_names)


_NO_ANSWERS: dict[str, Any] = {
    **dict.fromkeys(("budget", "limits", "alerts", "pacing", "allowed_models", "agents", "slo"), True),
    **dict.fromkeys(("max_usd_per_request", "overrides", "timezone", "experiments"), True),
    "context": {"prompt_cache": True, "old_outputs": True, "holdout": True, "keep_alive": True},
    "trials": {"classes": True},
    "data": {"store_samples": True},
}
"""Keys of a policy that do not influence answers. The fingerprint omits them. The key `old_outputs` is one of them,
because the gateway leaves an old tool output out of a request only if no answer should need the output."""


_AS_DEFAULT: dict[str, Any] = {"cost_centre": "", "hedging": HedgingPolicy()}
"""Further keys that do not influence answers. In the fingerprint they have these default values, because fingerprints
of earlier versions contain them."""


def _fingerprint(policy: Policy) -> str:
    shaping = policy.model_copy(update=_AS_DEFAULT).model_dump_json(exclude=_NO_ANSWERS)
    return hashlib.sha256(without_later(shaping.encode())).hexdigest()[:16]


class Policies:
    """The valid policies. The `on_change` functions are called after every successful reload."""

    def __init__(
        self, folders: Sequence[Path], ceilings: Ceilings, copies: Path | None = None, *, logged: bool = True
    ) -> None:
        """`copies`: the folder with copies of earlier policies, which are used for files that are invalid now. Without
        this folder, an invalid file raises ConfigError with all mistakes in all files.

        `logged`: whether reloads are logged. The supervisor's are not, because its workers log theirs."""
        self._levels = (logging.INFO, logging.ERROR) if logged else (logging.DEBUG, logging.DEBUG)
        self._folders = tuple(folders)
        self._ceilings = ceilings
        self._listeners: list[Callable[[], None]] = []
        self._reloads = self._failures = 0
        self._dates = dates(folders)  # taken before the files are read, so that a change during the reading is noticed
        self.current, problems = reload_policies(folders, ceilings, PolicySet())
        if problems and copies is None:
            raise ConfigError(problems)
        if problems and copies is not None:
            names = [path for path, _ in policy_files(folders, (), [])]
            self.current, problems = reload_policies(folders, ceilings, PolicySet(files=kept(copies, names)))
            log.error(
                "policy files have mistakes, so the previous policies still apply:\n%s",
                "\n".join(problems),
            )
        self.problem = "\n".join(problems)
        """The files that the last reload refused, and the reasons; empty if there are none."""

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def reload(self) -> bool:
        """Reload all files. The policies of an invalid file do not change. Returns True if all files are valid."""
        try:
            fresh, problems = await asyncio.to_thread(reload_policies, self._folders, self._ceilings, self.current)
            changed = fresh != self.current
            if changed:
                self.current = fresh
                self._reloads += 1
                for listener in self._listeners:
                    listener()
            if changed or not problems:  # an operator who reloads with a signal looks for this line
                log.log(self._levels[0], "policies reloaded: %s", ", ".join(sorted(fresh.policies)))
        except Exception as error:  # of any type, so that the next change is still read
            problems = (f"policies cannot be read: {type(error).__name__}",)
            log.exception("policies not reloaded")
        self.problem = "\n".join(problems)
        if problems:
            self._failures += 1
            log.log(self._levels[1], "policies not reloaded; the last valid policies still apply:\n%s", self.problem)
        return not problems

    async def adopt(self, ceilings: Ceilings) -> None:
        """Apply new ceilings of the operator to the policies from now on."""
        self._ceilings = ceilings
        await self.reload()

    async def watch(self, look_s: float = LOOK_S) -> None:
        """Check the folders every `look_s` seconds, and reload after a change. Runs until cancelled."""
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
