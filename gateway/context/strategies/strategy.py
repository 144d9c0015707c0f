"""The interface of a strategy, and the strategy that changes nothing."""

from __future__ import annotations

from typing import Protocol

from gateway.context.cuts.session import Cut
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant


class Strategy(Protocol):
    """Leaves parts out of a request."""

    async def cut(self, request: CompletionRequest, tenant: Tenant, found: Cut) -> Cut:
        """Return `found` and the further parts that the strategy leaves out. Never raises: after an error, nothing
        more is left out.
        """
        ...

    def stats(self) -> dict[str, int]: ...


class InTurn:
    """The strategy that applies several strategies, one after another."""

    def __init__(self, *strategies: Strategy) -> None:
        self._strategies = strategies

    async def cut(self, request: CompletionRequest, tenant: Tenant, found: Cut) -> Cut:
        for strategy in self._strategies:
            found = await strategy.cut(request, tenant, found)
        return found

    def stats(self) -> dict[str, int]:
        return {name: count for strategy in self._strategies for name, count in strategy.stats().items()}


class Whole:
    """The strategy that leaves nothing out."""

    async def cut(self, request: CompletionRequest, tenant: Tenant, found: Cut) -> Cut:
        return found

    def stats(self) -> dict[str, int]:
        return {}


WHOLE = Whole()
