"""Splits policy files into teams and bases, and merges each with the base that it extends.

The values are merged as they stand in the files, before validation. So the class `Policy` needs no fields for bases, a
fingerprint depends only on the merged values, and the file and line of each value stay known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from gateway.domain.policy import TEAM_NAME, TEAM_NAME_LENGTH, Policy
from gateway.settings.files import ConfigError, Document, old_names, validated
from gateway.settings.remedies import did_you_mean, is_unknown, shown
from gateway.settings.renamed_keys import POLICY, KeyPath, OldName, Translation, translate

DEFAULT = "default"
"""The name of the team whose policy applies to every team without a policy of its own. Other policies may also extend
this policy as a base."""

_NAME = re.compile(TEAM_NAME)
_WHOLE = ("budget",)
"""Sections that are taken over from a base only as a whole, even if the section is a single mapping."""
_WHOLE_ENTRIES = ("models",)
"""Sections whose entries are taken over from a base only as a whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """A team's policy or a base, as it stands in a file."""

    document: Document
    name: str
    is_base: bool
    extends: str
    """The base that it extends; empty if none."""
    translation: Translation

    def place(self, path: KeyPath) -> str:
        return self.document.place(path, self.translation.written)

    def old_names(self) -> list[OldName]:
        return old_names(self.document, self.translation)


@dataclass(frozen=True, slots=True)
class Merged:
    """A team's values, merged with those of its base."""

    part: Part
    base: Part | None
    data: Mapping[str, Any]
    inherited: frozenset[KeyPath] = field(default_factory=frozenset)
    """Paths whose values come from the base, including everything below these paths."""

    def source(self, path: KeyPath) -> Part:
        """The part (the team or its base) in which the value at `path` stands."""
        if self.base is not None and any(path[:end] in self.inherited for end in range(1, len(path) + 1)):
            return self.base
        return self.part

    def place(self, path: KeyPath) -> str:
        """The beginning of an error message about `path`: file, line and key, in the policy or the base."""
        return self.source(path).place(path)

    def policy(self) -> Policy:
        """The merged values as a validated policy. Raises ConfigError with all mistakes."""
        part = self.part
        conflicts = [
            (lambda path=path, advice=advice: part.document.place(path) + advice)
            for path, advice in part.translation.conflicts
        ]
        return validated(Policy, self.data, self.place, conflicts)


def parts_of(document: Document) -> tuple[list[Part], list[str]]:
    """The teams and bases of a file, and the mistakes in it. A file has one `team`, one `base`, or `teams` and
    `bases`."""
    data = document.data
    problems: list[str] = []
    if "teams" not in data and "bases" not in data:
        part = _single(document, problems)
        return ([part] if part else []), problems
    found: list[Part] = []
    for key in data:
        if key not in ("teams", "bases"):
            problems.append(f"{document.place((key,))}cannot stand beside teams or bases; move it into one of them")
        elif not isinstance(data[key], dict):
            problems.append(f"{document.place((key,))}must be a mapping of names to policies")
        else:
            found += _sections(document, key, problems)
    return found, problems


def _single(document: Document, problems: list[str]) -> Part | None:
    data = document.data
    if "base" not in data:
        return _part(document, data, str(data.get("team", "")), False, problems)
    if "team" in data:
        problems.append(f"{document.place(('base',))}a file has either team or base; remove one")
        return None
    name = data["base"]
    if not _is_name(name) or name == DEFAULT:
        problems.append(f"{document.place(('base',))}must be a name of letters, digits and ._- other than {DEFAULT}")
        return None
    return _part(document, {key: value for key, value in data.items() if key != "base"}, name, True, problems)


def _sections(document: Document, key: str, problems: list[str]) -> Iterator[Part]:
    is_base = key == "bases"
    for name, data in document.data[key].items():
        section = document.section(key, name) if isinstance(name, str) else document
        if name is None or isinstance(name, int | float | bool | date):
            problems.append(f"{document.place((key,))}the name {name} must be text; put it in quotes")
        elif not _is_name(name) or (is_base and name == DEFAULT):
            problems.append(f"{document.place((key, name))}the name must consist of letters, digits and ._-")
        elif not isinstance(data, dict):
            problems.append(f"{document.place((key, name))}must be a mapping of keys to values; {{}} is an empty one")
        elif "team" in data or "base" in data:
            wrong = "team" if "team" in data else "base"
            problems.append(f"{section.place((wrong,))}remove it; {name} is the name already")
        elif part := _part(section, data if is_base else {"team": name, **data}, name, is_base, problems):
            yield part


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= TEAM_NAME_LENGTH and bool(_NAME.fullmatch(name))


def _part(document: Document, data: Mapping[str, Any], name: str, is_base: bool, problems: list[str]) -> Part | None:
    extends = data.get("extends")
    if "extends" in data and not (isinstance(extends, str) and extends):
        problems.append(f"{document.place(('extends',))}must be {DEFAULT} or the name of a base")
        return None
    values = {key: value for key, value in data.items() if key != "extends"}
    return Part(document, name, is_base, extends or "", translate(values, POLICY))


def merge(part: Part, bases: Mapping[str, Part]) -> Merged:
    """Merge the values of `part` (a team or a base) with those of the base that it extends. Raises ConfigError if this
    base is missing, or if it extends another base."""
    if not part.extends:
        return Merged(part, None, part.translation.data)
    base = bases.get(part.extends)
    place = part.place(("extends",))
    if part.extends == part.name:
        raise ConfigError([f"{place}{part.name} cannot extend itself; remove it"])
    if base is None:
        if part.extends == DEFAULT:  # the built-in default policy
            return Merged(part, None, _merged(part.translation.data, {}, (), set()))
        called, known = shown(repr(part.extends)), sorted({DEFAULT, *bases})
        near = did_you_mean(part.extends, known, f"there are {', '.join(known)}")
        raise ConfigError([f"{place}there is no base called {called}; {near}"])
    if base.extends:
        problem = f"{base.name} extends {shown(base.extends)} itself, and only one level is allowed"
        raise ConfigError([f"{place}{problem}; name another base, or remove extends there"])
    inherited: set[KeyPath] = set()
    theirs = {key: value for key, value in base.translation.data.items() if key != "team"}
    data = _merged(part.translation.data, theirs, (), inherited)
    return Merged(part, base, data, frozenset(inherited))


def _merged(own: Mapping[Any, Any], base: Mapping[Any, Any], path: KeyPath, inherited: set[KeyPath]) -> dict[Any, Any]:
    """Merge `own` into `base`. Mappings are merged key by key. Any other value of `own` replaces the value in `base`;
    null removes it. The paths of all values that come from `base` are added to `inherited`."""
    found: dict[Any, Any] = {}
    for key, value in base.items():
        if key not in own:
            found[key] = value
            inherited.add((*path, key))
    for key, value in own.items():
        if value is None:
            if is_unknown(Policy, (*path, key)):
                found[key] = None  # validation refuses the mistyped key
            continue
        theirs = base.get(key)
        whole = (not path and key in _WHOLE) or (len(path) == 1 and path[0] in _WHOLE_ENTRIES)
        if isinstance(value, Mapping) and not whole:
            found[key] = _merged(value, theirs if isinstance(theirs, Mapping) else {}, (*path, key), inherited)
        else:
            found[key] = value
    return found


def check_base(base: Part) -> None:
    """Check a base as if it were a policy. Raises ConfigError with all mistakes."""
    Merged(base, None, {**base.translation.data, "team": base.name}).policy()
