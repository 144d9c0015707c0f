"""Lists the values of a team's policy, each with the file and line that set it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.domain.policy import Policy
from gateway.policy.inherit import DEFAULT, Merged, merge
from gateway.policy.schema import above_ceilings, under_ceilings
from gateway.policy.sources import read_sources
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Ceilings
from gateway.settings.renamed_keys import POLICY, KeyPath, as_new

CEILING, BUILT_IN = "ceilings of gateway.yaml", "default"


@dataclass(frozen=True, slots=True)
class Value:
    """One key of a policy, with its value and the place that set it."""

    key: str
    value: Any
    origin: str
    """The place that set the value: file and line such as `policies/base.yaml:7`, CEILING, or BUILT_IN."""
    is_set: bool
    """Whether a policy file sets the value."""


def effective(folders: Sequence[Path], ceilings: Ceilings, team: str) -> tuple[str, list[Value]]:
    """The team whose policy applies (`team` or `default`), and all values of this policy. Raises ConfigError if the
    policy, or the base that it extends, has a mistake."""
    found = read_sources(folders, ())
    parts = {part.name: part for _, part in found.teams}
    owner = team if team in parts else DEFAULT
    if owner not in parts:
        return DEFAULT, [*_values(None, Policy(team=DEFAULT), ceilings)]
    part = parts[owner]
    if part.extends in found.unusable:
        raise ConfigError(found.problems)
    merged = merge(part, found.usable())
    policy = merged.policy()
    if above := above_ceilings(policy, ceilings):
        raise ConfigError([merged.place(path) + sentence for path, sentence in above])
    return owner, [*_values(merged, policy, ceilings)]


def _values(merged: Merged | None, policy: Policy, ceilings: Ceilings) -> Iterator[Value]:
    shown: set[KeyPath] = set()
    before = dict(_flat(policy.model_dump(mode="json")))
    for path, value in _flat(under_ceilings(policy, ceilings).model_dump(mode="json")):
        is_set = merged is not None and _is_set(merged.data, path)
        if before.get(path, value) != value:
            origin, is_set = CEILING, True
        else:
            origin = merged.place(path).split(": ")[0] if merged is not None and is_set else BUILT_IN
        for new_path, new_value in as_new(path, value, POLICY):
            if new_path not in shown:  # an old key and the key that replaced it are shown once
                shown.add(new_path)
                yield Value(".".join(map(str, new_path)), new_value, origin, is_set)


def _flat(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """The (path, value) of every key that is not a section."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _flat(each, (*path, key))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value):
            yield from _flat(each, (*path, number))
    else:
        yield path, value


def _is_set(data: Any, path: KeyPath) -> bool:
    """Return whether the files have a value at `path`. Short forms count, too: one element instead of a list, and a
    list instead of a section whose only key is `candidates`."""
    for step in path:
        if isinstance(data, Mapping):
            if isinstance(step, int):
                continue
            if step not in data:
                return False
            data = data[step]
        elif isinstance(data, list) and isinstance(step, int):
            if step >= len(data):
                return False
            data = data[step]
        else:
            return step == "candidates" and isinstance(data, list)
    return True


def places(folders: Sequence[Path]) -> Callable[[str, KeyPath], str]:
    """Make a function that returns the beginning of an error message about a key: (team, path) → text such as
    `policies/search.yaml:7: budget.limit_usd: `.
    """
    found = read_sources(folders, ())
    bases, teams = {name: part for name, (_, part) in found.bases.items()}, dict[str, Merged]()
    for _, part in found.teams:
        with suppress(ConfigError):
            teams.setdefault(part.name, merge(part, bases))

    def place(team: str, path: KeyPath) -> str:
        return teams[team].place(path) if team in teams else f"team {team}: {'.'.join(map(str, path))}: "

    return place
