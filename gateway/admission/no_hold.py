"""The hold of a request that has no budget."""

from __future__ import annotations

from typing import Protocol

from gateway.domain.backend import Backend
from gateway.domain.protocols import Hold
from gateway.domain.record import Attempt
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached

EVER = float("inf")
"""Value of `Hold.covers` if `grow` need never be called."""


class RequestHold(Hold, Protocol):
    """A `Hold` with the methods that the pipeline needs to settle a request."""

    held: int

    def settle(self, cost_pico: int) -> None:
        """Book the request's total cost (pico-dollars). Does not await."""
        ...

    def release(self) -> None:
        """End the hold without a cost. Does nothing if the hold was settled."""
        ...


class NoHold:
    """Implements `RequestHold` for requests without budgets: it holds nothing and covers every answer."""

    covers = EVER
    output_limit: int | None = None
    held = 0

    def left_nano(self) -> int | None:
        return None

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        pass

    async def grow(self, output_tokens: int, seen: int) -> None:
        pass

    def follow(self, attempt: Attempt) -> None:
        pass

    def settle(self, cost_pico: int) -> None:
        pass

    def release(self) -> None:
        pass


NO_HOLD: RequestHold = NoHold()
