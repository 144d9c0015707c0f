"""Predicts the size of a request from the size that the backend reported for the session's last request.

The predicted size is the reported size, plus the estimated tokens of the turns that were added since, times a ratio.
Each session has its own ratio: the growth of the reported sizes, divided by the growth of the estimates. A session
begins with an assumed ratio. Tokens that the gateway left out are subtracted.

If the client has rewritten its history, the estimate of the whole request is multiplied by the session's ratio. Each
worker has its own memory. Without an earlier size, nothing is predicted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gateway.context.attachments.beside import guesses
from gateway.context.count import family_factor
from gateway.context.measure import estimated_turn
from gateway.domain.backend import Backend
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan, Prefix

MOST_SESSIONS = 4096
"""Maximum number of sessions, with about 500 bytes each. When the number is exceeded, the session that was not used for
the longest time is forgotten."""
_WEIGHT = 10_000.0
"""Number of estimated tokens that the assumed ratio counts as."""
_KEEPS = 0.98
"""Share of the weight of earlier requests that remains after each further request."""
_LEAST_RATIO, _MOST_RATIO = 0.8, 1.6
_MOST_GROWTH = 3.0
"""Maximum growth of a reported size that is learned, relative to the expected growth. A larger growth comes from tokens
that are not in the request, such as results of the provider's own tools."""


@dataclass(slots=True)
class _Size:
    """The last answered request of a session, and the growth of the session so far."""

    reported: int
    trimmed: int
    """Tokens that the gateway left out of the request."""
    turns: int
    lengths: tuple[int, ...]
    added: float
    """Estimated tokens that were added by the session's requests."""
    grown: float
    """Tokens by which the reported sizes grew when `added` was added."""

    @property
    def ratio(self) -> float:
        return max(_LEAST_RATIO, min(self.grown / self.added, _MOST_RATIO))

    def continued_by(self, prefix: Prefix) -> bool:
        return prefix.turns > self.turns and prefix.lengths[: len(self.lengths)] == self.lengths


class SessionGrowth:
    """Keeps the last reported size and the ratio of each pair (session, backend). The object has no locks, because
    it belongs to one event loop.
    """

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._known: OrderedDict[tuple[bytes, str], _Size] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def predict(self, request: CompletionRequest, prefix: Prefix, backend: Backend, plan: ContextPlan) -> int:
        """The number of input tokens that `backend` will probably report for this request. 0 if the session is
        unknown.
        """
        known = self._known.get((prefix.session, backend.name))
        if known is None:
            return 0
        if not known.continued_by(prefix):
            return max(1, round(plan.expected_tokens * known.ratio))
        new = request.turns[known.turns :]
        added = sum([estimated_turn(request, turn) for turn in new])
        if any(turn.files for turn in new):
            attached = guesses(request)
            added += sum([attached.get(turn.index, 0) for turn in new])
        return max(1, known.reported + round(added * known.ratio) - (plan.trimmed_tokens - known.trimmed))

    def learn(self, record: Record) -> None:
        """Store the reported size of an answered request."""
        attempt, prefix = record.served_by, record.route.prefix if record.route is not None else None
        if attempt is None or attempt.outcome != "ok" or prefix is None or not prefix.turns:
            return
        usage = attempt.usage
        if usage is None or usage.estimated or not usage.all_input:
            return
        key = prefix.session, attempt.backend.name
        before = self._known.pop(key, None)
        added, grown = _WEIGHT, _WEIGHT * family_factor(attempt.backend.model)
        if before is not None:
            added, grown = before.added, before.grown
            if before.continued_by(prefix):
                more = attempt.trimmed_tokens - before.trimmed - before.reported
                expected = (attempt.input_tokens + more) / before.ratio
                if expected > 0 and (growth := usage.all_input + more) > 0:
                    added = added * _KEEPS + expected
                    grown = grown * _KEEPS + min(growth, _MOST_GROWTH * expected)
        self._known[key] = _Size(usage.all_input, attempt.trimmed_tokens, prefix.turns, prefix.lengths, added, grown)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
