"""What a strategy is, and the strategy that changes nothing."""

from __future__ import annotations

from typing import Protocol

from gateway.context.cuts.session import Cut
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant


class Strategy(Protocol):
    """Leaves parts out of a request."""

    async def cut(self, request: CompletionRequest, tenant: Tenant, found: Cut) -> Cut:
        """`found`, and beside it what the strategy leaves out. Never raises: after an error, nothing more is left
        out."""
        ...

    def stats(self) -> dict[str, int]: ...


class Whole:
    """The strategy that leaves nothing out."""

    async def cut(self, request: CompletionRequest, tenant: Tenant, found: Cut) -> Cut:
        return found

    def stats(self) -> dict[str, int]:
        return {}


WHOLE = Whole()
