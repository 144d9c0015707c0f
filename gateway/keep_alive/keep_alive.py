"""Sends the calls that keep prompts in Anthropic's cache during the pauses of sessions (`context.keep_alive`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gateway.context.strategies import keep_alive
from gateway.context.strategies.keep_alive import IDLE_S, Cached
from gateway.domain.backend import Backend
from gateway.domain.prompt_cache import SHORT_S
from gateway.domain.protocols import PriceList
from gateway.domain.record import KEEP_ALIVE, Attempt, Record, new_request_id
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan, Prefix, Route
from gateway.domain.tenant import Tenant
from gateway.errors import BudgetExhausted, GatewayError, StateUnavailable
from gateway.keep_alive.returns import Returns
from gateway.pipeline import Pipeline
from gateway.runtime.off_loop import OffLoop
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State

log = logging.getLogger(__name__)

MOST_WAITING = 256
"""Maximum number of sessions for which one worker keeps a request. When the number is exceeded, the session of the same
key that has waited for the longest time is given up."""
_MOST_BYTES = 64 * 2**20
"""Maximum bytes of all kept requests. While a request waits, only its bytes are kept."""
AT_A_TIME = 4
"""Maximum number of calls that one worker has in flight."""
_DEADLINE_S = 30.0
_UNREAD_S = 3600.0
"""Seconds for which no call is sent for a team and a backend after a call that found less than half of its prompt in
the cache."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """The last request of one session."""

    request: CompletionRequest
    tenant: Tenant
    prefix: Prefix
    plan: ContextPlan
    at: float
    """Monotonic time in seconds at which the request was planned."""
    task: asyncio.Task[None] | None = None
    """The task that waits for the pause; None until the request is answered."""
    calling: bool = False
    """Whether the call was sent. Then it is not cancelled when the session continues, because it is billed anyway."""

    @property
    def agent(self) -> bool:
        return "tools" in self.request.needs


class KeepAlives:
    """Implements the protocol `KeepAlive` of `gateway/context`. An error in this class never affects a request. It only
    means that no money is saved."""

    def __init__(
        self,
        state: State,
        prices: PriceList,
        tenant_of: Callable[[str], Tenant],
        *,
        switched_off: Callable[[str], bool] = lambda team: False,
        leaving: Callable[[], bool] = lambda: False,
        off_loop: OffLoop | None = None,
        idle_s: float = IDLE_S,
        most: int = MOST_WAITING,
    ) -> None:
        """Create the object; `open` starts the calls.

        `tenant_of`: returns the present tenant of a key, by its lineage. `switched_off`: whether context changes
        are switched off for a team, because they did not pay. `leaving`: whether the worker is ending. `idle_s`:
        seconds after which a session counts as idle.
        """
        self._returns, self._prices, self._tenant_of = Returns(state), prices, tenant_of
        self._switched_off, self._leaving, self._off_loop = switched_off, leaving, off_loop or OffLoop()
        self._idle_s, self._most, self._bytes = idle_s, most, 0
        self._pipeline: Pipeline | None = None
        self._waiting: OrderedDict[bytes, _Waiting] = OrderedDict()
        self._unread: dict[tuple[str, str], float] = {}
        """(Team, backend) → monotonic time until which no call is sent."""
        self._tasks, self._slots = Tasks(), asyncio.Semaphore(AT_A_TIME)
        names = ("sent", "continued", "dropped", "changed", "unworthy", "late", "unpaid", "failed", "unread")
        self._counts = dict.fromkeys(names, 0)

    def open(self, pipeline: Pipeline) -> None:
        """Send calls through `pipeline` from now on."""
        self._pipeline = pipeline

    async def aclose(self) -> None:
        """Drop all waiting sessions. The ledger records calls in flight as interrupted."""
        await self._tasks.aclose()

    def stats(self) -> dict[str, int | float | str]:
        return {"waiting": len(self._waiting), **self._counts}

    def asked(self, request: CompletionRequest, tenant: Tenant, prefix: Prefix, plan: ContextPlan) -> None:
        self._give_up(prefix.session)
        one = _Waiting(request, tenant, prefix, plan, time.monotonic())
        self._tasks.spawn(self._note(one), "keep-alive: asked")
        if not keep_alive.may_keep(request, tenant, plan) or self._switched_off(tenant.team):
            return
        self._waiting[prefix.session] = one
        self._bytes += len(request.raw)
        while len(self._waiting) > self._most or self._bytes > _MOST_BYTES:
            self._give_up(self._next_dropped(one))
            self._counts["dropped"] += 1

    def _next_dropped(self, one: _Waiting) -> bytes:
        """The waiting session to drop so that there is room for `one`: the oldest session of the same key or, if there
        is none, the oldest session of all keys."""
        key = one.tenant.key.lineage
        own = (session for session, each in self._waiting.items() if each is not one and each.tenant.key.lineage == key)
        return next(own, next(iter(self._waiting)))

    def ended(self, record: Record, attempt: Attempt | None, cached: Cached) -> None:
        if record.route is None or record.route.prefix is None:
            return
        session = record.route.prefix.session
        one = self._waiting.get(session)
        if one is None or one.request.id != record.request_id or one.task is not None:
            return
        over = time.monotonic() - one.at >= self._idle_s
        if attempt is None or not cached.tokens or attempt.outcome != "ok" or record.over_budget or over:
            self._give_up(session)
            return
        one.request = keep_alive.without_parsed(one.request)
        one.task = self._tasks.spawn(self._keep(one, record, attempt.backend, cached), "keep-alive")

    def _give_up(self, session: bytes) -> None:
        """Forget the session's last request, and cancel its call if it was not sent."""
        one = self._waiting.pop(session, None)
        if one is None:
            return
        self._bytes -= len(one.request.raw)
        if one.task is not None and not one.calling:
            one.task.cancel()

    async def _note(self, one: _Waiting) -> None:
        try:
            await self._returns.asked(one.prefix.session, one.request.id, one.tenant.team, agent=one.agent)
        except StateUnavailable as error:  # then no worker knows the request, so no call is sent
            log.debug("a request was not noted for keep-alive: %s", error)

    async def _keep(self, one: _Waiting, record: Record, backend: Backend, cached: Cached) -> None:
        await asyncio.sleep(one.at + self._idle_s - time.monotonic())
        try:
            outcome = await self._outcome(one, record, backend, cached)
        except BudgetExhausted:
            outcome = "unpaid"
        except (GatewayError, StateUnavailable) as error:
            outcome = "failed"
            log.info("a prompt was not kept in the cache of %s: %s", backend.name, error)
        self._counts[outcome] += 1
        if self._waiting.get(one.prefix.session) is one:
            self._give_up(one.prefix.session)

    async def _outcome(self, one: _Waiting, record: Record, backend: Backend, cached: Cached) -> str:
        """Send the keep-alive call if it saves money. Returns the name of the counter to increment. Raises
        GatewayError, StateUnavailable.
        """
        team = one.tenant.team
        share = await self._returns.idle(one.prefix.session, one.request.id, team, agent=one.agent)
        if share is None:
            return "continued"
        if not self._worth(backend, cached, share) or self._unread.get((team, backend.name), 0.0) > time.monotonic():
            return "unworthy"
        async with self._slots:
            if time.monotonic() - one.at >= self._idle_s + (SHORT_S - IDLE_S) / 2:
                return "late"
            pipeline = self._pipeline
            if pipeline is None or self._leaving() or not self._unchanged(one.tenant):
                return "changed"
            if not pipeline.fleet.state(backend).available:
                return "failed"
            one.calling = True
            return await self._call(pipeline, one, record, backend, cached)

    def _worth(self, backend: Backend, cached: Cached, share: float) -> bool:
        price = self._prices.price(backend)
        if price is None:
            return False
        cost, gain = keep_alive.cost_and_gain(price, cached, share)
        return gain > cost

    def _unchanged(self, tenant: Tenant) -> bool:
        """Whether key and policy are the same as when the client sent the request. Raises GatewayError if the key
        was revoked.
        """
        return self._tenant_of(tenant.key.lineage) == tenant

    async def _call(self, pipeline: Pipeline, one: _Waiting, served: Record, backend: Backend, cached: Cached) -> str:
        request, tenant, plan = await self._off_loop.run(keep_alive.smallest, one.request), one.tenant, one.plan
        record = Record(
            new_request_id(), tenant, backend.name, request.dialect, False, session=served.session, tags=served.tags,
            end_user=served.end_user, agent=served.agent, kind=KEEP_ALIVE, traffic_class=served.traffic_class,
        )  # fmt: skip
        record.route = route = Route((backend,), "keeps a prompt in the cache", prefix=one.prefix)
        await pipeline.budgets.refuse_exhausted(tenant, record.end_user, record.started_at, record.session)

        async def plan_for(_: Backend) -> ContextPlan:
            return keep_alive.again(plan)

        hold = pipeline.budgets.hold(tenant, record, request)
        ends = asyncio.get_running_loop().time() + _DEADLINE_S
        try:
            await pipeline.ask(route, request, record, hold, ends, plan_for)
        finally:
            hold.settle(record.cost_pico or 0)
            hold.release()
        usage = record.attempts[-1].usage
        if usage is None or usage.cached_tokens * 2 < usage.all_input:
            self._unread[tenant.team, backend.name] = time.monotonic() + _UNREAD_S
            return "unread"
        cached.renew()
        pipeline.router.kept_alive(record)
        return "sent"
