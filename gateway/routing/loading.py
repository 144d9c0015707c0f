"""Loads what routing decides by: the packaged classifier and the operator's plan."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.routing.difficulty.grader import Grader
    from gateway.routing.strategy.plan import Plan


log = logging.getLogger(__name__)


def packaged() -> Grader:
    """The packaged classifier. Imported here, because it and NumPy take 15 MiB that many gateways do not need."""
    from gateway.routing.difficulty.grader import Grader

    return Grader.load()


def fitted(artefact: str | None) -> Plan | None:
    """The plan at this path; None without a path. Raises ArtefactError, OSError."""
    if artefact is None:
        return None
    from gateway.routing.strategy.plan_file import load_plan

    return load_plan(Path(artefact))


def followed(artefact: str | None) -> Plan | None:
    """As `fitted`, but an unreadable plan is logged and ignored, so that requests are still served."""
    try:
        return fitted(artefact)
    except (OSError, ValueError) as error:
        log.error("routing.plan_file is not followed, decisions follow the grader: %s", error)
        return None
