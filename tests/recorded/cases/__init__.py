"""The cases, made by plain code: client dialects × server dialects × stream or plain × situations, and the rest."""

from __future__ import annotations

from tests.recorded.case import Case
from tests.recorded.cases import conversations, refusals


def all_cases() -> list[Case]:
    """In the order of the fixture."""
    return [*conversations.cases(), *refusals.cases()]
