"""Passes on the pieces of a stream only while the money that is held for the request covers them."""

from __future__ import annotations

from gateway.domain.answer import Answer, Sink, delivered_about, delivered_at_most
from gateway.domain.money.usage import interrupted
from gateway.domain.protocols import Hold
from gateway.domain.record import Attempt, Record
from gateway.errors import BudgetExhausted


class HoldGate:
    """Wraps the stream of `attempt`. If the budgets allow no more money to be held, it breaks the stream off or
    truncates it.
    """

    def __init__(self, answer: Answer, attempt: Attempt, hold: Hold, record: Record) -> None:
        self._answer, self._attempt, self._hold, self._record = answer, attempt, hold, record

    async def pipe_to(self, take: Sink, take_last: Sink) -> bool:
        """Pass the pieces of the answer to `take`, and those that arrive together with the end of the answer to
        `take_last`. Before each piece, enough money is held to pay for it.

        If no more money can be held, the rule of the budget decides: truncate the answer, or raise BudgetExhausted.
        Returns True if `take` accepts no more pieces now, False at the end of the answer.
        """
        answer, attempt, hold = self._answer, self._attempt, self._hold
        uncovered: bytes | None = None

        def pass_on(piece: bytes) -> bool:
            if not piece:
                return True
            return take_last(piece) if answer.over else take(piece)

        def covered(piece: bytes) -> bool:
            nonlocal uncovered
            if attempt.seen > hold.covers:
                uncovered = piece
                return False
            return pass_on(piece)

        while await answer.pipe_to(covered):
            if uncovered is None:
                return True
            piece, uncovered = uncovered, None
            try:
                await self._grow()
            except BudgetExhausted as spent:
                if not spent.truncates:
                    raise
                if not answer.over:  # otherwise the complete answer was delivered before it could be ended
                    await self._truncate(spent)
                    pass_on(piece)
                    return False
            if not pass_on(piece):
                return True
        return False

    async def _grow(self) -> None:
        """Hold more money for the answer if it needs it. Raises BudgetExhausted. The text is read only if the budgets
        do not allow a hold for the rough estimate."""
        answer, attempt, hold = self._answer, self._attempt, self._hold
        rough = delivered_about(answer, attempt)
        try:
            await hold.grow(rough, attempt.seen)
        except BudgetExhausted:
            if (delivered := delivered_at_most(answer, attempt)) == rough:
                raise
            await hold.grow(delivered, attempt.seen)

    async def _truncate(self, spent: BudgetExhausted) -> None:
        """End the answer as if it had reached its length limit. Raises the error `spent` if this kind of answer
        cannot be ended early.
        """
        answer, attempt = self._answer, self._attempt
        delivered = delivered_at_most(answer, attempt)
        if not await answer.cut(interrupted(attempt.reported, attempt.input_tokens, delivered)):
            raise spent
        attempt.error = spent.code
        self._record.note("truncated", tokens=delivered, why=spent.message)
