"""Loads policies/ into one immutable set that is swapped as a whole. The last valid policy stays while its file is
invalid."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.domain.policy import Policy
from gateway.policy.kept import kept
from gateway.policy.schema import above_ceilings, under_ceilings
from gateway.policy.watch import LOOK_S, SUFFIXES, changes, dates
from gateway.settings.files import ConfigError, load
from gateway.settings.gateway import Ceilings
from gateway.settings.renamed_keys import OldName

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The team whose policy applies to every team without a file of its own."""


_OldNames = Mapping[Path, tuple[OldName, ...]]


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All policies at one moment."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    epochs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, Policy] = field(default_factory=dict)
    """Each file's policy, before the operator's ceilings."""
    old_names: _OldNames = field(default_factory=dict, compare=False)
    """Renamed keys that a file calls by their old names."""

    def old_names_of(self, team: str) -> tuple[OldName, ...]:
        """The old names that the team's own file uses."""
        return next((self.old_names.get(path, ()) for path, policy in self.files.items() if policy.team == team), ())

    def find(self, team: str) -> tuple[Policy, str]:
        """The team's own policy, or the default one under the team's name, with its fingerprint."""
        if team in self.policies:
            return self.policies[team], self.epochs[team]
        default = self.policies.get(DEFAULT) or Policy(team=DEFAULT)
        return default.model_copy(update={"team": team}), self.epochs.get(DEFAULT, "")


def load_policies(folders: Sequence[Path], ceilings: Ceilings) -> PolicySet:
    """Read and validate every `*.yaml` in `folders`. Raises ConfigError with every mistake in every file."""
    fresh, problems = reload_policies(folders, ceilings, PolicySet())
    if problems:
        raise ConfigError(problems)
    return fresh


def reload_policies(folders: Sequence[Path], ceilings: Ceilings, last: PolicySet) -> tuple[PolicySet, tuple[str, ...]]:
    """Read all files again. Returns (the new set, every mistake in every file).

    An invalid file affects only its own team: that policy stays as in `last`, and changes in other files take effect.
    """
    problems: list[str] = []
    old_names: dict[Path, tuple[OldName, ...]] = {}
    claims: dict[str, dict[Path, Policy]] = {}
    for path, folder in _files(folders, last, problems):
        old: list[OldName] = []
        policy = _read(path, folder, ceilings, problems, old) or last.files.get(path)
        if policy is not None:
            claims.setdefault(policy.team, {})[path] = policy
        if old:
            old_names[path] = tuple(old)
    return _build(_settled(claims, last, problems), ceilings, old_names), tuple(problems)


def _settled(claims: Mapping[str, Mapping[Path, Policy]], last: PolicySet, problems: list[str]) -> dict[Path, Policy]:
    """Choose one file per team. If several claim a team, its previous file wins; the others keep the policies that they
    had."""
    files: dict[Path, Policy] = {}
    for team, claim in claims.items():
        before = [path for path in claim if path in last.files and last.files[path].team == team]
        owner = next(iter(claim)) if len(claim) == 1 else next(iter(before), None)
        if owner is not None:
            files[owner] = claim[owner]
        first = owner or min(claim)
        problems += [
            f"{path}: team: {team!r} has its policy in {first} already; keep one"
            for path in sorted(set(claim) - {first})
        ]
        for path in set(claim) - {owner}:
            if path in last.files and last.files[path].team not in claims:
                files[path] = last.files[path]
    return files


def _files(folders: Sequence[Path], last: PolicySet, problems: list[str]) -> Iterator[tuple[Path, Path]]:
    """Each policy file with its folder; from `last` if a folder cannot be listed."""
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIXES))
        except OSError as error:
            problems.append(f"{folder}: cannot be listed: {error.strerror}; its policies stay as they are")
            names = sorted(path.name for path in last.files if path.parent == folder)
        yield from ((folder / name, folder) for name in names)


def _read(path: Path, folder: Path, ceilings: Ceilings, problems: list[str], old_names: list[OldName]) -> Policy | None:
    """The file's policy; None, with the reasons added to `problems`, if it is invalid."""
    try:
        policy = load(path, Policy, within=folder, on_old_name=old_names.append)
    except ConfigError as error:
        problems += error.problems
        return None
    above = [f"{path}: {problem}" for problem in above_ceilings(policy, ceilings)]
    problems += above
    return None if above else policy


def _build(files: Mapping[Path, Policy], ceilings: Ceilings, old_names: _OldNames) -> PolicySet:
    policies = {DEFAULT: under_ceilings(Policy(team=DEFAULT), ceilings)}
    policies |= {policy.team: under_ceilings(policy, ceilings) for policy in files.values()}
    epochs = {team: _fingerprint(policy) for team, policy in policies.items()}
    return PolicySet(policies, epochs, files, old_names)


_NO_ANSWERS: dict[str, Any] = {
    **dict.fromkeys(("budget", "limits", "alerts", "pacing", "allowed_models", "agents"), True),
    "context": {"prompt_cache": True},
}
"""What of a policy changes no answer."""


def _fingerprint(policy: Policy) -> str:
    return hashlib.sha256(policy.model_dump_json(exclude=_NO_ANSWERS).encode()).hexdigest()[:16]


class Policies:
    """The policies in force. `on_change` functions are called after every successful reload."""

    def __init__(self, folders: Sequence[Path], ceilings: Ceilings, copies: Path | None = None) -> None:
        """`copies`: the folder with the previous policies, used for files that are invalid now. Without it, raises
        ConfigError with every mistake in every file."""
        self._folders = tuple(folders)
        self._ceilings = ceilings
        self._listeners: list[Callable[[], None]] = []
        self._reloads = self._failures = 0
        self._dates = dates(folders)  # taken before the files are read, so that a change meanwhile is noticed
        self.current, problems = reload_policies(folders, ceilings, PolicySet())
        if problems and copies is None:
            raise ConfigError(problems)
        if problems and copies is not None:
            names = [path for path, _ in _files(folders, PolicySet(), [])]
            self.current, problems = reload_policies(folders, ceilings, PolicySet(files=kept(copies, names)))
            log.error("policy files are wrong, what was in force before stays so:\n%s", "\n".join(problems))
        self.problem = "\n".join(problems)
        """Which files the last reload refused, and why; empty if none."""

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def reload(self) -> bool:
        """Reload all files. An invalid file's policy stays as it was. Returns True if none is invalid."""
        try:
            fresh, problems = await asyncio.to_thread(reload_policies, self._folders, self._ceilings, self.current)
            changed = fresh != self.current
            if changed:
                self.current = fresh
                self._reloads += 1
                for listener in self._listeners:
                    listener()
            if changed or not problems:  # an operator who reloads with a signal looks for this line
                log.info("policies reloaded: %s", ", ".join(sorted(fresh.policies)))
        except Exception as error:  # whatever an invalid file caused; the next edit is read again
            problems = (f"policies cannot be read: {type(error).__name__}",)
            log.exception("policies not reloaded")
        self.problem = "\n".join(problems)
        if problems:
            self._failures += 1
            log.error("policies not reloaded, the last good ones stay in force:\n%s", self.problem)
        return not problems

    async def adopt(self, ceilings: Ceilings) -> None:
        """Apply other ceilings to the teams from now on."""
        self._ceilings = ceilings
        await self.reload()

    async def watch(self, look_s: float = LOOK_S) -> None:
        """Check the folders every `look_s` seconds, forever, and reload after a change."""
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
