"""Combines the holds of one request on several counter groups: of organisation, team and end user, in dollars and in
tokens."""

from __future__ import annotations

from gateway.admission.budget_hold import BudgetHold
from gateway.domain.backend import Backend
from gateway.domain.record import Attempt
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached


class BudgetHolds:
    """Implements `Hold` as a combination of several holds. The hold with the lowest limit decides."""

    def __init__(self, parts: tuple[BudgetHold, ...]) -> None:
        self._parts = parts
        self.covers = float("inf")
        self.output_limit: int | None = None
        self.held = 0
        """Sum of the units of all holds, each in its own unit."""

    def left_nano(self) -> int | None:
        return min((left for part in self._parts if (left := part.left_nano()) is not None), default=None)

    async def extend(
        self, backend: Backend, input_tokens: int, attached: Attached = NOTHING_ATTACHED, *, marked: bool = False
    ) -> None:
        """Hold money for a call of `backend` in each of the holds. Raises BudgetExhausted if one of them cannot grow.

        Holds that have already grown before this error keep their money until the next call or the end of the request.
        """
        for part in self._parts:
            await part.extend(backend, input_tokens, attached, marked=marked)
        self.output_limit = min(
            (part.output_limit for part in self._parts if part.output_limit is not None), default=None
        )
        self._cover()

    async def grow(self, output_tokens: int, seen: int) -> None:
        """Hold more money if an answer in progress needs it. `output_tokens`: estimate from the delivered text.
        `seen`: upper limit of this number. Raises BudgetExhausted.
        """
        for part in self._parts:
            await part.grow(output_tokens, seen)
        self._cover()

    def follow(self, attempt: Attempt) -> None:
        """Apply `grow` and `covers` (number of tokens that the held money pays for) to `attempt`, whose answer the
        client gets. Call this if money is held for several attempts."""
        for part in self._parts:
            part.follow(attempt)
        self._cover()

    def _cover(self) -> None:
        self.covers = min([part.covers for part in self._parts])
        self.held = sum([part.held for part in self._parts])

    def settle(self, cost_pico: int) -> None:
        """Book the request's total cost (pico-dollars) in all holds. Does not await."""
        for number, part in enumerate(self._parts):
            part.settle(cost_pico, learn=number == 0)

    def release(self) -> None:
        """End all holds without a cost. Does nothing if they were settled."""
        for part in self._parts:
            part.release()
