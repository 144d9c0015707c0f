"""Notes about old turns without providers and state server, for sessions with a simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.context.cuts.session import Cut
from gateway.context.strategies import old_turns
from gateway.context.strategies.old_turns import Notes
from gateway.domain.backend import Backend
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan
from gateway.domain.tenant import Tenant


class NotesAtOnce:
    """Implements `OldTurns` for one session and all its workers. Notes are written at each request, and sent from the
    next one on before which the cache has expired."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._cached_until = now, 0.0
        self._notes: list[Notes] = []
        self._used: set[str] = set()
        self.requests = 0
        """Number of requests with notes."""

    async def replaced(self, request: CompletionRequest, tenant: Tenant, backend: Backend, found: Cut) -> Cut:
        if not old_turns.may_replace(request, tenant, backend):
            return found
        notes = old_turns.valid(request.turns, self._notes)
        if self._now() >= self._cached_until:
            self._used.update(each.history for each in notes)
        notes = [each for each in notes if each.history in self._used]
        self.requests += bool(notes)
        return old_turns.with_notes(request, found, notes)

    def asked(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, plan: ContextPlan, cached_s: float
    ) -> None:
        self._cached_until = self._now() + cached_s
        if not old_turns.may_replace(request, tenant, backend):
            return
        valid = old_turns.valid(request.turns, self._notes)
        drafted = old_turns.draft(request, plan.replace, valid, answers=True)
        if drafted is not None and (notes := drafted.notes("Parcels leave.\n" + "\n".join(drafted.needed))):
            self._notes = [*valid, notes]

    def ended(self, record: Record, attempt: Attempt | None) -> None:
        pass

    def stats(self) -> Mapping[str, int | float | str]:
        return {}
