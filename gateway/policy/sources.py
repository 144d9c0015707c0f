"""Reads all policy files at one moment, and splits them into teams and bases."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.policy.inherit import DEFAULT, Part, check_base, parts_of
from gateway.policy.watch import SUFFIXES
from gateway.settings.files import ConfigError, read_document


@dataclass(slots=True)
class Sources:
    """The teams and bases in the policy files, and the mistakes found so far."""

    teams: list[tuple[Path, Part]] = field(default_factory=list)
    bases: dict[str, tuple[Path, Part]] = field(default_factory=dict)
    unusable: set[str] = field(default_factory=set)
    """Bases with mistakes."""
    broken: set[Path] = field(default_factory=set)
    """Files that cannot be split into teams and bases, at least in part."""
    problems: list[str] = field(default_factory=list)

    def usable(self) -> dict[str, Part]:
        return {name: part for name, (_, part) in self.bases.items() if name not in self.unusable}


def read_sources(folders: Sequence[Path], known: Collection[Path]) -> Sources:
    """Read all policy files. `known`: the files that an earlier call found. If a folder cannot be listed, its files in
    `known` are read."""
    found = Sources()
    for path, folder in policy_files(folders, known, found.problems):
        try:
            parts, mistakes = parts_of(read_document(path, folder))
        except ConfigError as error:
            parts, mistakes = [], list(error.problems)
        found.problems += mistakes
        if mistakes:
            found.broken.add(path)
        for part in parts:
            _add(found, path, part)
    for name, (_, base) in found.bases.items():
        _check(found, name, base)
    return found


def policy_files(folders: Sequence[Path], known: Collection[Path], problems: list[str]) -> Iterator[tuple[Path, Path]]:
    """All policy files, each with its folder. If a folder cannot be listed, its files are taken from `known`."""
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIXES))
        except OSError as error:
            problems.append(f"{folder}: cannot be listed: {error.strerror}; its policies stay as they are")
            names = sorted(path.name for path in known if path.parent == folder)
        yield from ((folder / name, folder) for name in names)


def _add(found: Sources, path: Path, part: Part) -> None:
    if not part.is_base:
        found.teams.append((path, part))
    if not part.is_base and part.name != DEFAULT:
        return
    if part.name not in found.bases:
        found.bases[part.name] = path, part
    elif part.is_base:
        first, _ = found.bases[part.name]
        found.problems.append(f"{part.place(('base',))}{part.name!r} is defined in {first} already; keep one")


def _check(found: Sources, name: str, base: Part) -> None:
    if base.is_base and base.extends:
        found.problems.append(f"{base.place(('extends',))}a base cannot extend another one; remove it")
        found.unusable.add(name)
    elif not base.extends:
        try:
            check_base(base)
        except ConfigError as error:
            found.unusable.add(name)
            if base.is_base:  # mistakes of the default policy are reported for its team
                found.problems += error.problems
