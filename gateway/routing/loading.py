"""Loads the files that routing uses for its decisions: the packaged classifier and the operator's plan."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.routing.difficulty.grader import Grader
    from gateway.routing.strategy.plan import Plan


log = logging.getLogger(__name__)


def packaged() -> Grader:
    """The packaged classifier. It is imported only at the first call, because it needs 15 MiB of memory."""
    from gateway.routing.difficulty.grader import Grader

    return Grader.load()


def fitted(artefact: str | None) -> Plan | None:
    """The plan in the file `artefact`; None without a file. Raises ArtefactError, OSError."""
    if artefact is None:
        return None
    from gateway.routing.strategy.plan_file import load_plan

    return load_plan(Path(artefact))


def followed(artefact: str | None) -> Plan | None:
    """Like `fitted`, but a plan that cannot be read is logged and ignored, so that requests are still served."""
    try:
        return fitted(artefact)
    except (OSError, ValueError) as error:
        log.error("routing.plan_file is not followed, decisions follow the grader: %s", error)
        return None
