"""One request on its way to backends, with everything around the call that a test wants to look at."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.backends.fleet import Fleet
from gateway.domain.answer import Answer
from gateway.domain.backend import Backend
from gateway.domain.policy import Policy
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan, Route
from gateway.domain.tenant import Key, Tenant
from gateway.errors import ContextTooLong
from tests.fakes.money import LooseHold, StrictBooks
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request

POLICY = Policy(team="search")


def record_of(request: CompletionRequest, policy: Policy = POLICY, key: str = "key_1") -> Record:
    tenant = Tenant(Key(key, policy.team), policy)
    return Record(request.id, tenant, request.model, request.dialect, request.stream)


@dataclass
class Caller:
    """Calls `fleet` once; the plan is the request untouched unless a backend's name is in `windows`."""

    fleet: Fleet
    hold: LooseHold = field(default_factory=LooseHold)
    books: StrictBooks = field(default_factory=StrictBooks)
    windows: Mapping[str, int] = field(default_factory=dict)
    """Backend → most input tokens that fit."""
    tokens: int = 7
    policy: Policy = POLICY
    session: str = ""
    key: str = "key_1"
    record: Record = field(default_factory=lambda: record_of(chat_request()))

    async def plan_for(self, backend: Backend) -> ContextPlan:
        if self.windows.get(backend.name, self.tokens) < self.tokens:
            raise ContextTooLong(f"It does not fit {backend.name}.")
        return ContextPlan(self.tokens, self.tokens)

    async def call(self, request: CompletionRequest, route: Route | None = None, *, within_s: float = 30.0) -> Answer:
        self.record = record_of(request, self.policy, self.key)
        self.record.session = self.session
        return await self.fleet.call(
            route or Route(self.fleet.backends, "test"),
            request,
            self.record,
            plan_for=self.plan_for,
            hold=self.hold,
            books=self.books,
            deadline=asyncio.get_running_loop().time() + within_s,
        )

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(attempt.backend.name, attempt.outcome) for attempt in self.record.attempts]

    def settled(self) -> bool:
        """Is every opened attempt but the serving one closed?"""
        serving = [one.id for one in self.record.attempts if one.outcome in ("ok", "open", "interrupted")]
        return self.books.still_open == [name for name in serving if name not in self.books.closed]


async def read(answer: Answer) -> bytes:
    """All of it, as a client would get it."""
    data = b"".join([piece async for piece in pieces_of(answer)]) + answer.ending
    await answer.aclose()
    return data
