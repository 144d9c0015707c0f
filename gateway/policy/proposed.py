"""Reads a policy file that does not apply yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.domain.policy import Policy
from gateway.policy.inherit import DEFAULT, merge, parts_of
from gateway.policy.schema import above_ceilings, under_ceilings
from gateway.policy.sources import read_sources
from gateway.settings.files import ConfigError, read_document
from gateway.settings.gateway import Ceilings


def load_proposed(file: Path, folders: Sequence[Path], ceilings: Ceilings) -> dict[str, Policy]:
    """The policies that would apply if `file` replaced the present policies of its teams: team → policy. Raises
    ConfigError with all mistakes in `file`.

    A policy in `file` may extend the bases in `folders`. If `file` has a base, this replaces the base of the same name,
    and all teams that extend the base are included in the result.
    """
    parts, problems = parts_of(read_document(file, file.parent))
    present = read_sources(folders, ())
    own = {part.name: part for part in parts if part.is_base or part.name == DEFAULT}
    bases = present.usable() | own
    named = {part.name for part in parts if not part.is_base}
    followers = [part for _, part in present.teams if part.extends in own and part.name not in named]
    found: dict[str, Policy] = {}
    for part in (*(part for part in parts if not part.is_base), *followers):
        try:
            merged = merge(part, bases)
            policy = merged.policy()
        except ConfigError as error:
            problems += error.problems
            continue
        problems += [merged.place(path) + sentence for path, sentence in above_ceilings(policy, ceilings)]
        found[policy.team] = under_ceilings(policy, ceilings)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return found
