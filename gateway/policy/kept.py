"""Keeps copies of the valid policies. A worker that starts while a policy file is invalid uses the copy instead."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson
import yaml

from gateway.domain.policy import Policy
from gateway.settings.bounded_yaml import TEAM
from gateway.settings.files import ConfigError, load
from gateway.settings.regular_file import Unreadable, read_text

log = logging.getLogger(__name__)

_FROM = "# from "


def keep(folder: Path, files: Mapping[Path, Mapping[str, Policy]]) -> None:
    """Write each valid policy into `folder`, one file per team, merged with its base. This blocks. A failure is logged,
    and the next change tries again."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        names = {_write(folder, path, policy) for path, teams in files.items() for policy in teams.values()}
        for copy in folder.iterdir():
            if copy.name not in names:
                copy.unlink()
    except OSError as error:
        log.warning("the valid policies could not be copied to %s: %s", folder, error.strerror)


def kept(folder: Path, files: Iterable[Path]) -> dict[Path, dict[str, Policy]]:
    """Read the copies of the policies that came from `files`."""
    wanted, found = {str(path): path for path in files}, dict[Path, dict[str, Policy]]()
    for copy in sorted(folder.glob("*.yaml")):
        with contextlib.suppress(ConfigError, Unreadable, OSError, ValueError):
            first, _, _ = read_text(copy, folder, TEAM.size_bytes).partition("\n")
            path = wanted.get(orjson.loads(first.removeprefix(_FROM)))
            if path is not None:
                policy = load(copy, Policy, within=folder)
                found.setdefault(path, {})[policy.team] = policy
    return found


def _write(folder: Path, path: Path, policy: Policy) -> str:
    """Write the copy of one policy, and return the name of its file."""
    name = f"{policy.team}.yaml"
    values = yaml.safe_dump(policy.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True)
    text = f"{_FROM}{orjson.dumps(str(path)).decode()}\n{values}"
    fresh = folder / f"{name}.new"
    fresh.touch(mode=0o600)
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(folder / name)
    return name
