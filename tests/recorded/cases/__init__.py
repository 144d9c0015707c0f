"""The cases, made by plain code: client dialects × server dialects × stream or plain × situations, and the rest."""

from __future__ import annotations

from tests.recorded.case import Case
from tests.recorded.cases import cached, conversations, endpoints, goldens, governed, headers, refusals, variants


def all_cases() -> list[Case]:
    """In the order of the fixture."""
    modules = (conversations, variants, goldens, endpoints, headers, refusals, cached, governed)
    return [case for module in modules for case in module.cases()]
