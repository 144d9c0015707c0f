"""When a session pauses, asks a backend to write notes about the session's old turns. After the pause, the notes
replace these turns in the session's requests (`context.old_turns: summarize`).

The notes are written shortly before the provider's cache forgets the prompt. So no request waits for them, and the
first request after the pause already contains them. If they were written after the pause, they could only be used
after the next pause. In the recorded sessions, 65 % continue after a pause of five minutes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from gateway.context.cuts.session import Cut
from gateway.context.strategies import old_turns
from gateway.context.strategies.flags import conversation_of
from gateway.context.strategies.keep_alive import without_parsed
from gateway.context.strategies.old_turns import Draft, Notes
from gateway.dialects.clients import DIALECTS
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.domain.answer import Answer
from gateway.domain.backend import Backend
from gateway.domain.protocols import MarginalPrices
from gateway.domain.record import SUMMARY, Attempt, Record, new_request_id
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import ContextEstimate, ContextPlan, Route
from gateway.domain.tenant import Tenant
from gateway.errors import BudgetExhausted, GatewayError, StateUnavailable
from gateway.old_turns.store import NotesStore, Stored
from gateway.pipeline import Pipeline
from gateway.routing.aliases import permitted
from gateway.routing.candidates import Demand, examine
from gateway.runtime.off_loop import OffLoop
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State

log = logging.getLogger(__name__)

EARLY_S = 20.0
"""Seconds before the end of the cache at which the notes are written."""
MOST_WAITING = 256
"""Maximum number of sessions for which one worker keeps a request. When the number is exceeded, the session of the same
key that has waited for the longest time is given up."""
_MOST_BYTES = 64 * 2**20
"""Maximum bytes of all kept requests. While a request waits, only its bytes are kept."""
_MOST_KNOWN = 512
AT_A_TIME = 2
"""Maximum number of calls that one worker has in flight."""
_DEADLINE_S = 60.0
_UNFIT_S = 6 * 3600.0
"""Seconds for which a backend writes no notes for a team after it failed, or wrote unusable notes."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """The last request of one session."""

    conversation: bytes
    request: CompletionRequest
    tenant: Tenant
    backend: Backend
    plan: ContextPlan
    at: float
    """Monotonic time in seconds at which the request was planned."""
    wait_s: float
    """Seconds after which the notes are written."""
    task: asyncio.Task[None] | None = None
    """The task that waits for the pause; None until the request is answered."""
    calling: bool = False
    """Whether the call was sent. Then it is not cancelled when the session continues, because it is billed anyway."""


class SummarizedTurns:
    """Implements `OldTurns` of gateway/context. An error in this class never affects a request. It only means that no
    money is saved."""

    def __init__(
        self,
        state: State,
        prices: MarginalPrices,
        tenant_of: Callable[[str], Tenant],
        *,
        switched_off: Callable[[str], bool] = lambda team: False,
        leaving: Callable[[], bool] = lambda: False,
        off_loop: OffLoop | None = None,
        wait_s: float | None = None,
        most: int = MOST_WAITING,
    ) -> None:
        """`tenant_of`: the present tenant of a key, by its lineage. `switched_off`: whether context changes are
        switched off for a team, because they did not pay. `leaving`: whether the worker ends. `wait_s`: seconds of
        a pause after which notes are written; None: as long as the provider's cache lasts.
        """
        self._store, self._prices, self._tenant_of = NotesStore(state), prices, tenant_of
        self._switched_off, self._leaving, self._off_loop = switched_off, leaving, off_loop or OffLoop()
        self._wait_s, self._most, self._bytes = wait_s, most, 0
        self._pipeline: Pipeline | None = None
        self._waiting: OrderedDict[bytes, _Waiting] = OrderedDict()
        """Digest of a conversation → its last request."""
        self._asked: dict[str, bytes] = {}
        """Id of a waiting request → digest of its conversation."""
        self._known: OrderedDict[tuple[bytes, str], list[Notes]] = OrderedDict()
        """(Conversation, backend) → the notes that this worker sent last. Used while the state server is away."""
        self._unfit: dict[tuple[str, str], float] = {}
        """(Team, backend) → monotonic time until which the backend writes no notes."""
        self._tasks, self._slots = Tasks(), asyncio.Semaphore(AT_A_TIME)
        names = ("written", "continued", "dropped", "changed", "short", "unworthy", "claimed", "unpaid", "failed")
        self._counts = dict.fromkeys((*names, "unusable", "requests_with_notes"), 0)

    def open(self, pipeline: Pipeline) -> None:
        """Send calls through `pipeline` from now on."""
        self._pipeline = pipeline

    async def aclose(self) -> None:
        """Give up all waiting sessions. Calls in flight are recorded in the ledger as interrupted."""
        await self._tasks.aclose()

    def stats(self) -> dict[str, int | float | str]:
        return {"waiting": len(self._waiting), **self._counts}

    async def replaced(self, request: CompletionRequest, tenant: Tenant, backend: Backend, found: Cut) -> Cut:
        if not old_turns.may_replace(request, tenant, backend) or self._switched_off(tenant.team):
            return found
        key = conversation_with_opening(request, tenant.key.lineage), backend.name
        try:
            notes = await self._to_send(request, key)
        except StateUnavailable:
            notes = old_turns.valid(request.turns, self._known.get(key, ()))
        if notes:
            self._counts["requests_with_notes"] += 1
            self._known[key] = notes
            self._known.move_to_end(key)
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        else:
            self._known.pop(key, None)
        return old_turns.with_notes(request, found, notes)

    async def _to_send(self, request: CompletionRequest, key: tuple[bytes, str]) -> list[Notes]:
        """The notes to send with the request. These are the notes that earlier requests of the session contained. If
        the provider's cache has expired, newer notes are included. Raises StateUnavailable.
        """
        stored = await self._store.read(*key)
        if not stored.notes:
            return []
        found = old_turns.valid(request.turns, stored.notes)
        new = [notes for notes in found if notes.history not in stored.used]
        if new and stored.cached:
            return [notes for notes in found if notes.history in stored.used]
        await self._store.use(*key, new)
        return found

    def asked(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, plan: ContextPlan, cached_s: float
    ) -> None:
        conversation = conversation_with_opening(request, tenant.key.lineage)
        self._give_up(conversation)
        noted = self._noted(conversation, request.id, backend.name, cached_s, tenant.team)
        self._tasks.spawn(noted, "old turns: asked")
        short = old_turns.requests_so_far(request.turns) <= old_turns.LEAST_REQUESTS
        if short or not old_turns.may_replace(request, tenant, backend) or self._switched_off(tenant.team):
            return
        wait_s = max(0.0, cached_s - EARLY_S) if self._wait_s is None else self._wait_s
        one = _Waiting(conversation, request, tenant, backend, plan, time.monotonic(), wait_s)
        self._waiting[conversation], self._asked[request.id] = one, conversation
        self._bytes += len(request.raw)
        while len(self._waiting) > self._most or self._bytes > _MOST_BYTES:
            self._give_up(self._next_dropped(one))
            self._counts["dropped"] += 1

    def _next_dropped(self, one: _Waiting) -> bytes:
        """The conversation to give up so that there is room for `one`: the oldest conversation of the same key or, if
        there is none, the oldest conversation of all keys."""
        key = one.tenant.key.lineage
        own = (name for name, each in self._waiting.items() if each is not one and each.tenant.key.lineage == key)
        return next(own, next(iter(self._waiting)))

    def ended(self, record: Record, attempt: Attempt | None) -> None:
        conversation = self._asked.get(record.request_id)
        one = None if conversation is None else self._waiting.get(conversation)
        if one is None or one.task is not None:
            return
        if attempt is None or attempt.outcome != "ok" or attempt.backend.name != one.backend.name or record.over_budget:
            self._give_up(one.conversation)
            return
        one.request = without_parsed(one.request)
        one.task = self._tasks.spawn(self._wait(one, record), "old turns")

    def _give_up(self, conversation: bytes) -> None:
        """Forget the session's last request, and cancel its call if it was not sent."""
        one = self._waiting.pop(conversation, None)
        if one is None:
            return
        self._bytes -= len(one.request.raw)
        self._asked.pop(one.request.id, None)
        if one.task is not None and not one.calling:
            one.task.cancel()

    async def _noted(self, conversation: bytes, request_id: str, backend: str, cached_s: float, team: str) -> None:
        try:
            await self._store.asked(conversation, request_id, backend, cached_s, team)
        except StateUnavailable as error:  # then no worker knows the request, so no notes are written
            log.debug("a request was not noted: %s", error)

    async def _wait(self, one: _Waiting, record: Record) -> None:
        await asyncio.sleep(one.at + one.wait_s - time.monotonic())
        try:
            outcome = await self._outcome(one, record)
        except BudgetExhausted:
            outcome = "unpaid"
        except (GatewayError, StateUnavailable) as error:
            outcome = "failed"
            log.info("no notes about old turns were written: %s", error)
        self._counts[outcome] += 1
        if self._waiting.get(one.conversation) is one:
            self._give_up(one.conversation)

    async def _outcome(self, one: _Waiting, served: Record) -> str:
        """Ask a backend to write notes, if they save money. Returns the name of the counter to increment. Raises
        GatewayError, StateUnavailable.
        """
        share = await self._store.paused(one.conversation, served.request_id, one.tenant.team, one.wait_s)
        if share is None:
            return "continued"
        async with self._slots:
            pipeline = self._pipeline
            if pipeline is None or self._leaving() or not self._unchanged(one.tenant):
                return "changed"
            stored = await self._store.read(one.conversation, one.backend.name)
            valid, drafted = await self._off_loop.run(_drafted, one, stored)
            if drafted is None:
                return "short"
            writer = self._writer(pipeline, one, drafted, share)
            if writer is None:
                return "unworthy"
            await pipeline.budgets.refuse_exhausted(one.tenant, served.end_user, time.time(), served.session)
            if not await self._store.claim(one.conversation, drafted.history):
                return "claimed"
            one.calling = True
            notes = await self._written(pipeline, one, served, drafted, writer)
            if notes is None:
                return "unusable"
            await self._store.add(one.conversation, notes, valid, stored)
            return "written"

    def _unchanged(self, tenant: Tenant) -> bool:
        """Whether key and policy are the same as when the client sent the request. Raises GatewayError if the key
        was revoked.
        """
        return self._tenant_of(tenant.key.lineage) == tenant

    def _writer(self, pipeline: Pipeline, one: _Waiting, drafted: Draft, share: float) -> Backend | None:
        """The cheapest backend that may and can write the notes, among those that the policy permits for `auto`. None
        if the call would cost more than it saves. `share`: share of sessions that continue after such a pause.
        Raises GatewayError.
        """
        served = self._prices.price(one.backend)
        if served is None:
            return None
        policy, tokens = one.tenant.policy, drafted.input_tokens
        demand = Demand(
            "openai_chat", frozenset(), ContextEstimate(tokens, tokens), drafted.most_output, drafted.most_output,
            policy.data,
        )  # fmt: skip
        backends = permitted("auto", policy, pipeline.fleet.backends, one.tenant.access).backends
        now, worth = time.monotonic(), list[tuple[int, str, Backend]]()
        for found in examine(backends, demand, self._prices, pipeline.fleet):
            name, price = found.backend.name, self._prices.price(found.backend)
            if found.excluded or price is None or self._unfit.get((one.tenant.team, name), 0.0) > now:
                continue
            cost, gain = old_turns.cost_and_gain(drafted, price, served, share)
            if gain > old_turns.MULTIPLE * cost:
                worth.append((cost, name, found.backend))
        return min(worth, default=(0, "", None), key=lambda each: each[:2])[2]

    async def _written(
        self, pipeline: Pipeline, one: _Waiting, served: Record, drafted: Draft, writer: Backend
    ) -> Notes | None:
        """Ask the backend `writer` to write notes. `drafted`: the prompt for the backend. Returns None if the notes
        are unusable. Raises GatewayError.
        """
        body = {"model": writer.model, "messages": drafted.messages, "max_tokens": drafted.most_output}
        request_id, controls = new_request_id(), Controls(cache="bypass", untouched=True, priority="batch")
        request = openai_chat.parse(orjson.dumps(body), request_id, controls, {})
        record = Record(
            request_id, one.tenant, writer.name, request.dialect, False, session=served.session, tags=served.tags,
            end_user=served.end_user, agent=served.agent, kind=SUMMARY, traffic_class=served.traffic_class,
        )  # fmt: skip
        record.route = route = Route((writer,), "writes notes about old turns")
        hold = pipeline.budgets.hold(one.tenant, record, request)
        ends = asyncio.get_running_loop().time() + _DEADLINE_S
        notes = None
        try:
            answer = await pipeline.ask(route, request, record, hold, ends)
            notes = drafted.notes(_text_of(answer))
        finally:
            hold.settle(record.cost_pico or 0)
            hold.release()
            if notes is None and record.attempts:
                self._unfit[one.tenant.team, writer.name] = time.monotonic() + _UNFIT_S
        return notes


def conversation_with_opening(request: CompletionRequest, lineage: str) -> bytes:
    """A digest of the conversation (see `conversation_of`) and of its first user message. Sub-agents of a session begin
    with other messages. So they get notes of their own and do not delete those of the session."""
    opening = next((turn.text for turn in request.turns if turn.role == "user"), "")
    known = conversation_of(request, lineage) + opening.encode("utf-8", "surrogatepass")
    return blake2b(known, digest_size=16).digest()


def _drafted(one: _Waiting, stored: Stored) -> tuple[list[Notes], Draft | None]:
    """Returns (the stored notes that belong to the history of the request, a draft of new notes). The draft is None if
    there is nothing to write notes about.
    """
    kept = one.request
    request = DIALECTS[kept.dialect].parse(kept.raw, kept.id, kept.controls, kept.headers)
    valid = old_turns.valid(request.turns, stored.notes)
    answers = one.tenant.policy.context.flagged_turns == "keep"  # an answer may be reported as wrong later
    return valid, old_turns.draft(request, one.plan.replace, valid, answers=answers)


def _text_of(answer: Answer) -> str:
    """The text of the whole answer. It is empty if the answer is incomplete, or if it ended at the token limit or by a
    filter, because a name or a number at its end may then be cut off.
    """
    body = answer.completion() if answer.complete else None
    if body is None:
        return ""
    choices = answer.choices or DIALECTS["openai_chat"].choices(orjson.loads(body))
    message = choices[0].get("message") if choices and choices[0].get("finish_reason") == "stop" else None
    text = message.get("content") if type(message) is dict else None
    return text if type(text) is str else ""
