"""Keeps copies of the policy files in force. If a file becomes invalid, a starting worker uses the copy."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from gateway.domain.policy import Policy
from gateway.settings.bounded_yaml import TEAM
from gateway.settings.files import ConfigError, load
from gateway.settings.regular_file import Unreadable, read_text

log = logging.getLogger(__name__)


def keep(folder: Path, files: Mapping[Path, Policy]) -> None:
    """Copy those of `files` whose content is in force into `folder`. For others, the older copy stays.

    Blocking. A failure is logged, and the next change of policies tries again.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for path, policy in files.items():
            _copy(path, policy, folder)
        names = set(map(_name, files))
        for copy in folder.iterdir():
            if copy.name not in names:
                copy.unlink()
    except OSError as error:
        log.warning("the policies in force could not be copied to %s: %s", folder, error.strerror)


def kept(folder: Path, files: Iterable[Path]) -> dict[Path, Policy]:
    """The content of those copies of `files` that exist."""
    found = {}
    for path in files:
        with contextlib.suppress(ConfigError):
            found[path] = load(folder / _name(path), Policy, within=folder)
    return found


def _copy(path: Path, policy: Policy, folder: Path) -> None:
    fresh = folder / f"{_name(path)}.new"
    try:
        text = read_text(path, path.parent, TEAM.size_bytes)
    except (Unreadable, OSError, UnicodeDecodeError):
        return
    fresh.touch(mode=0o600)
    fresh.write_text(text, encoding="utf-8")
    with contextlib.suppress(ConfigError):
        if load(fresh, Policy, within=folder) == policy:
            fresh.replace(folder / _name(path))


def _name(path: Path) -> str:
    return f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.yaml"
