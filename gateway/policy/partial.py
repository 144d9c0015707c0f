"""Finds the valid values of policies with mistakes, so that one run of `check` reports the other mistakes, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.domain.policy import Policy
from gateway.policy.inherit import merge
from gateway.policy.load import PolicySet
from gateway.policy.sources import read_sources
from gateway.settings.files import MOST_PROBLEMS, ConfigError
from gateway.settings.remedies import meant
from gateway.settings.renamed_keys import KeyPath

_STAND_INS: Mapping[Any, Any] = {"limit_usd": 1}
"""Required key → a valid value that replaces a wrong one. Without it, the key's whole section would be left out."""


def partial_policies(folders: Sequence[Path], valid: PolicySet) -> dict[str, Policy]:
    """The policies of those teams that are not in `valid`, without the wrong values, as team → policy."""
    found = read_sources(folders, ())
    bases = {name: part for name, (_, part) in found.bases.items()}
    policies: dict[str, Policy] = {}
    for path, part in found.teams:
        if part.name in valid.files.get(path, {}):
            continue
        try:
            data = deepcopy(dict(merge(part, bases).data))
        except ConfigError:
            continue
        if (policy := _without_mistakes(data)) is not None:
            policies[part.name] = policy
    return policies


def _without_mistakes(data: dict[Any, Any]) -> Policy | None:
    """Validate `data` as a policy after removing wrong values from it; None if it has too many mistakes."""
    for _ in range(MOST_PROBLEMS):
        try:
            return Policy.model_validate(data)
        except ValidationError as error:
            for each in meant(error.errors(include_url=False)):
                _remove(data, each["loc"])
    return None


def _remove(data: Any, path: KeyPath) -> None:
    """Remove the value at `path`. If it is an element of a list, remove the whole list, because the other elements must
    keep their numbers. Pydantic adds names of union members to `path`. Such steps, which `data` does not have, are
    ignored."""
    keys: list[tuple[dict[Any, Any], Any]] = []
    node = data
    for step in path:
        if isinstance(node, dict) and step in node:
            keys.append((node, step))
            node = node[step]
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
    if not keys:
        return
    section, key = keys[-1]
    if key in _STAND_INS and section[key] != _STAND_INS[key]:
        section[key] = _STAND_INS[key]
    else:
        del section[key]
