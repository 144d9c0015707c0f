"""The cases, made by plain code: client dialects × server dialects × stream or plain × situations, and the rest."""

from __future__ import annotations

from tests.recorded.case import Case
from tests.recorded.cases import conversations, endpoints, refusals


def all_cases() -> list[Case]:
    """In the order of the fixture."""
    return [*conversations.cases(), *endpoints.cases(), *refusals.cases()]
