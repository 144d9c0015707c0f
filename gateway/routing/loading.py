"""Loads the files with which routing decides: the packaged classifier and the operator's plans."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.routing.difficulty.grader import Grader
    from gateway.routing.strategy.plan import Plan


log = logging.getLogger(__name__)


def packaged() -> Grader:
    """The packaged classifier. Its module is imported at the first call, because it needs 15 MiB of memory."""
    from gateway.routing.difficulty.grader import Grader

    return Grader.load()


def fitted(artefact: str) -> Plan:
    """Load the plan in the file `artefact`. Raises ArtefactError, OSError."""
    from gateway.routing.strategy.plan_file import load_plan

    return load_plan(Path(artefact))


def followed(artefacts: Sequence[str]) -> tuple[Plan, ...]:
    """Load the plans in the files `artefacts`. A plan that cannot be read is logged and left out, so that requests are
    still served."""
    found = []
    for artefact in artefacts:
        try:
            found.append(fitted(artefact))
        except (OSError, ValueError) as error:
            log.error("the plan file %s cannot be used, so the grader decides instead: %s", artefact, error)
    return tuple(found)
