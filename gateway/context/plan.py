"""Decides which part of a request is sent to a backend. If the request fits the limits, the whole request is sent; if
not, the request is trimmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from gateway.context import measure
from gateway.context.attachments.beside import NOTHING, Attachments, beside, guesses
from gateway.context.attachments.find import find
from gateway.context.attachments.process import MeasuringProcess
from gateway.context.bounds import Bounds, bounds_of, tried
from gateway.context.cache_key import LEAST_CACHED, cache_fields
from gateway.context.count import Counter, encoding_of
from gateway.context.cuts.cutting import LEAST_TURNS, Cutting
from gateway.context.cuts.outputs import thinking_between
from gateway.context.cuts.session import NO_CUT, Cut, Weighed
from gateway.context.drop import drop_oldest
from gateway.context.groups import groups, last_user
from gateway.context.growth import SessionGrowth
from gateway.context.marks import CacheMarking
from gateway.context.measure import Sizes
from gateway.context.reported import ReportedSizes
from gateway.context.shorten import LEAST_TOKENS, level, shorten
from gateway.context.strategies import load_out, repeated_errors
from gateway.context.strategies.keep_alive import NO_KEEP_ALIVE, Cached, KeepAlive
from gateway.context.strategies.load_out import LoadOut, OwnMemory
from gateway.context.strategies.old_turns import KEPT_TURNS, OldTurns
from gateway.context.strategies.strategy import WHOLE, Strategy
from gateway.context.vocabulary import EncodingName
from gateway.domain.backend import Backend
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextEstimate, ContextPlan, Prefix
from gateway.domain.tenant import Tenant
from gateway.errors import ContextTooLong
from gateway.runtime.off_loop import LARGE_BYTES, OffLoop

_NEAR = 0.8
"""Share of a limit. If the estimated input is below this share, the input is not counted exactly, because the error of
`estimate` is smaller than the rest of the limit."""
_MANY_TURNS = 1000
"""A request with at least this number of turns is examined in a thread, because it would block the event loop for
milliseconds."""
_STEPS = 4
"""Trimming removes whole steps of tokens. The size of a step is the number of tokens that may remain, divided by this
number."""
_SMALL = 512
"""Minimum tokens of a request for which it is examined whether it can be trimmed."""


class Contexts:
    """Implements the protocol `Contexts` of domain/protocols.py."""

    def __init__(
        self,
        counter: Counter,
        measuring: MeasuringProcess | None = None,
        off_loop: OffLoop | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        switched_off: Callable[[str], bool] = lambda team: False,
        strategy: Strategy = WHOLE,
        keep_alive: KeepAlive = NO_KEEP_ALIVE,
        load_out: LoadOut | None = None,
        weighs_all: bool = False,
        old_turns: OldTurns = KEPT_TURNS,
    ) -> None:
        """`switched_off`: whether cuts are off for a team, because they did not save money. `strategy`: shortens
        documents.

        `load_out`: leaves out tool definitions; None: use an instance that keeps its decisions in this process only.
        `weighs_all`: whether `weighed` is exact even for a cut that is too expensive, which takes longer. `old_turns`:
        puts notes in place of old turns.
        """
        self._counter, self._off_loop = counter, off_loop or OffLoop()
        self._measuring = measuring or MeasuringProcess()
        self._reported, self._growth, self._marking = ReportedSizes(), SessionGrowth(), CacheMarking(monotonic)
        self._cutting = Cutting(self._off_loop, switched_off=switched_off, weighs_all=weighs_all)
        self._strategy, self._keep_alive, self._old_turns = strategy, keep_alive, old_turns
        self._load_out = load_out or LoadOut(OwnMemory(monotonic), self._off_loop, switched_off)
        self._counts = {"planned": 0, "counted": 0, "trimmed": 0, "shortened": 0, "refused": 0, "trimmed_tokens": 0}

    def close(self) -> None:
        """End the process that measures the attachments."""
        self._measuring.close()

    def weighed(self) -> Weighed | None:
        """The last cut that was considered, with its cost and gain. Shown by `context explain`."""
        return self._cutting.weighed()

    def stats(self) -> dict[str, int | float | str]:
        more = {**self._marking.stats(), **self._cutting.stats(), **self._strategy.stats()}
        more |= self._load_out.stats()
        return {**self._counts, **more, "reported_sizes": len(self._reported)}

    def learn(self, record: Record) -> None:
        """Store facts for the next request of the session: the size of the input that the backend reported, and the
        part of the prompt that is now in the provider's cache."""
        if record.route is None or (prefix := record.route.prefix) is None:
            return
        if record.tenant.policy.context.old_turns == "summarize":
            self._old_turns.ended(record, record.served_by)
        self._reported.learn(record)
        self._growth.learn(record)
        attempt = record.served_by
        if attempt is not None and attempt.outcome == "ok":
            self._marking.learn(attempt, record.tenant.team, prefix)
        if record.tenant.policy.context.keep_alive:
            cached = Cached(0, 0)
            if attempt is not None:
                key = prefix.session, attempt.backend.name
                cached = Cached(*self._marking.cached(*key), partial(self._marking.renew, *key))
            self._keep_alive.ended(record, attempt, cached)

    def estimate(self, request: CompletionRequest) -> ContextEstimate:
        """The estimated number of tokens of a request, without a tokenizer. The field `least` of the result is the
        smallest size to which trimming can reduce the request. The estimate takes microseconds. For a large body it
        takes milliseconds, so call it in a thread."""
        tokens = measure.estimated(request)
        if not request.one_context:
            return ContextEstimate(tokens, 0)  # the backend decides whether the input fits its window
        if tokens <= _SMALL or request.controls.untouched or len(request.turns) == 1:
            return ContextEstimate(tokens, tokens)
        if len(request.turns) > _MANY_TURNS:
            return ContextEstimate(tokens, self._least(request, tokens))
        return ContextEstimate(tokens, partial(self._least, request, tokens))

    def _least(self, request: CompletionRequest, tokens: int) -> int:
        asked = last_user(request.turns)
        goes, attached = 0, guesses(request)
        for group in groups(request.turns):
            for place in group.turns:
                turn = request.turns[place]
                if not group.kept:
                    goes += measure.estimated_turn(request, turn) + attached.get(turn.index, 0)
                elif turn.role != "system" and place != asked and not (turn.images or turn.files):
                    goes += max(0, self._counter.estimate(turn.text) - LEAST_TOKENS)
        return max(1, tokens - goes)

    async def plan_for(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None = None
    ) -> ContextPlan:
        """The plan for a request. Raises ContextTooLong if the request does not fit even after trimming."""
        marked, context = backend.facts.caches_marked_only, tenant.policy.context
        if prefix is None and not (marked or context.shortens):
            return self._plain(request, tenant, backend, None) or await self._fitted(request, tenant, backend, None)
        found = NO_CUT
        if prefix is not None and (marked or len(request.turns) > LEAST_TURNS):
            found = await self._cutting.cut(request, tenant, backend, prefix)
        summarizes = prefix is not None and context.old_turns == "summarize"
        if summarizes:
            found = await self._old_turns.replaced(request, tenant, backend, found)
        if context.shortens:
            found = await self._strategy.cut(request, tenant, found)
        client, reduces = request, prefix is not None and context.unused_tools == "leave_out"
        if reduces and prefix is not None:
            request = await self._load_out.reduced(client, tenant, backend, prefix)
        plan = await self._with_cut(request, tenant, backend, prefix, found)
        if found.repeats and repeated_errors.names_missing(request, found, plan):
            with suppress(ContextTooLong):
                less = repeated_errors.without_notes(request, found)
                plan = await self._with_cut(request, tenant, backend, prefix, less)
        if request is not client:
            load_out.attach(plan, client, request)
        if prefix is not None:
            plan.predicted_tokens = self._growth.predict(request, prefix, backend, plan)
        if marked:
            if found.anchor:
                plan.anchor = request.turns[found.anchor - 1].index + 1
            plan.marks = self._marking.plan(request, tenant, backend, prefix, plan)
        elif prefix is not None and plan.tokens_after >= LEAST_CACHED:
            plan.cache_fields = cache_fields(request, tenant.policy, backend, prefix)
        if prefix is not None:
            if context.keep_alive:
                self._keep_alive.asked(request, tenant, prefix, replace(plan, instead=None))
            if summarizes:
                self._old_turns.asked(client, tenant, backend, plan, load_out.cached_s(request, tenant, backend, plan))
            if reduces:
                await self._load_out.planned(client, request, tenant, backend, prefix, plan)
        return plan

    def _plain(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None
    ) -> ContextPlan | None:
        """The plan that sends the whole request. Most requests need only this step.

        None if the request has attachments or is not far below every limit.
        """
        tokens = measure.estimated(request)
        if request.estimated_beside or request.asides:
            return None
        if request.one_context:
            bounds = bounds_of(request, tenant.policy.context, backend, self._reported.last(prefix, backend))
            if bounds is not None and tokens > bounds.aim * _NEAR:
                return None
        self._counts["planned"] += 1
        return ContextPlan(tokens, tokens)

    async def _with_cut(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None, found: Cut
    ) -> ContextPlan:
        """The plan for a request without the outputs that the cut `found` leaves out. The rest of the request is then
        fitted to the limits as usual."""
        if not found.texts:
            return self._plain(request, tenant, backend, prefix) or await self._fitted(request, tenant, backend, prefix)
        turns = list(request.turns)
        for place, text in found.texts.items():
            turns[place] = replace(turns[place], text=text)
        tokens = measure.estimated(request)
        less = replace(request, turns=turns, estimated_tokens=max(1, tokens - found.tokens))
        plan = self._plain(less, tenant, backend, prefix) or await self._fitted(less, tenant, backend, prefix)
        request.attachments = less.attachments
        texts = {turns[place].index: text for place, text in found.texts.items()}
        plan.frozen = not plan.touched
        plan.replace = {index: text for index, text in {**texts, **plan.replace}.items() if index not in plan.drop}
        plan.no_thinking |= frozenset(turns[place].index for place in found.no_thinking) - plan.drop
        plan.tokens_before = max(tokens, plan.tokens_after)
        return plan

    async def _fitted(
        self, request: CompletionRequest, tenant: Tenant, backend: Backend, prefix: Prefix | None
    ) -> ContextPlan:
        """The plan for a request that has attachments or is near a limit. It sends the part that fits both the
        backend's window and the team's limit.
        """
        self._counts["planned"] += 1
        report = self._reported.last(prefix, backend)
        tokens = measure.estimated(request)
        bounds = bounds_of(request, tenant.policy.context, backend, report) if request.one_context else None
        others = NOTHING
        if request.estimated_beside or request.asides:
            others = await self._beside(request, backend)
            tokens += others.room - request.estimated_beside
        if bounds is None or tokens <= bounds.aim * _NEAR:
            return others.plan(tokens, tokens) if others.parts else ContextPlan(tokens, tokens)
        encoding = encoding_of(backend.model)
        self._counts["counted"] += 1
        sizes = await measure.sizes(request, self._counter, encoding, others.rooms())
        most = bounds.aim if backend.name in request.too_long_for else tried(request, bounds, backend, report)
        if sizes.total <= (most if bounds.trims else bounds.most + others.doubt()):
            return replace(others.plan(sizes.total, sizes.total), counted_tokens=sizes.total)
        if not bounds.trims:
            raise self._too_long(request, backend, sizes.total, bounds)
        return await self._trim(request, backend, sizes, others, bounds, encoding)

    async def _beside(self, request: CompletionRequest, backend: Backend) -> Attachments:
        """The attachments with their numbers of tokens for `backend`. The attachments are opened only once for each
        request, when its first plan is made."""
        attachments = request.attachments
        if attachments is None:
            if len(request.raw) > LARGE_BYTES:
                attachments = await self._off_loop.run(find, request)
            else:
                attachments = find(request)
            await self._measuring.measure(attachments)
            request.attachments = attachments
        return beside(request, attachments, backend)

    async def _trim(
        self,
        request: CompletionRequest,
        backend: Backend,
        sizes: Sizes,
        others: Attachments,
        bounds: Bounds,
        encoding: EncodingName,
    ) -> ContextPlan:
        total, step = sizes.total, max(1, bounds.aim // _STEPS)
        if len(request.turns) > _MANY_TURNS:
            drop = await self._off_loop.run(_droppable, request, sizes, total - bounds.aim, step)
        else:
            drop = _droppable(request, sizes, total - bounds.aim, step)
        left = total - sum(sizes.turns[place] for place in drop)
        shortened: dict[int, str] = {}
        if left > bounds.aim:
            shortened, left = await self._shorten(request, sizes, drop, left, bounds, encoding)
        index = [turn.index for turn in request.turns]
        gone = frozenset(index[place] for place in drop)
        if left > bounds.most + others.doubt(gone):
            raise self._too_long(request, backend, left, bounds, trimmed=True)
        # the model signs its thinking together with everything before it, so later thinking must go too
        touched = min(drop | shortened.keys(), default=len(request.turns))
        thinking = thinking_between(request, touched, last_user(request.turns))
        silent = {place: tokens for place, tokens in thinking.items() if place not in drop}
        left = max(1, left - sum(silent.values()))
        self._counts["trimmed"] += bool(drop or shortened)
        self._counts["shortened"] += len(shortened)
        self._counts["trimmed_tokens"] += total - left
        plan = others.plan(total, left, gone, {index[place]: text for place, text in shortened.items()})
        return replace(plan, counted_tokens=left, no_thinking=frozenset([index[place] for place in silent]))

    async def _shorten(
        self,
        request: CompletionRequest,
        sizes: Sizes,
        drop: frozenset[int],
        left: int,
        bounds: Bounds,
        encoding: EncodingName,
    ) -> tuple[dict[int, str], int]:
        """Shorten texts until the input fits. `left`: tokens of the input without the turns in `drop`.

        Returns (index of a turn → its shortened text, tokens of the remaining input). If the input cannot fit, no
        text is shortened.
        """
        asked = last_user(request.turns)
        may = [
            place
            for place, turn in enumerate(request.turns)
            if place not in drop and place != asked and turn.role != "system" and not (turn.images or turn.files)
        ]
        texts = [sizes.texts[place] for place in may]
        others = left - sum(texts)
        wanted = level(texts, bounds.aim - others)
        if wanted is None and left > bounds.most:
            wanted = level(texts, bounds.most - others)
        if wanted is None:
            return {}, left
        long = [place for place in may if sizes.texts[place] > wanted]
        return await asyncio.to_thread(self._shortened, request, sizes, long, wanted, left, encoding)

    def _shortened(
        self,
        request: CompletionRequest,
        sizes: Sizes,
        long: list[int],
        wanted: int,
        left: int,
        encoding: EncodingName,
    ) -> tuple[dict[int, str], int]:
        texts: dict[int, str] = {}
        for place in long:
            size = sizes.texts[place]
            text = shorten(request.turns[place].text, size, wanted, lambda cut: self._counter.count(cut, encoding))
            texts[place] = text
            left += self._counter.count(text, encoding) - size
        return texts, left

    def _too_long(
        self, request: CompletionRequest, backend: Backend, tokens: int, bounds: Bounds, *, trimmed: bool = False
    ) -> ContextTooLong:
        self._counts["refused"] += 1
        still = " even with earlier turns left out" if trimmed else ""
        says, remedy = _words(request, backend, bounds)
        return ContextTooLong(
            f"The request has {tokens} tokens of input{still}; {says} {bounds.most}. {remedy}",
            param=request.input_field,
        )


def _droppable(request: CompletionRequest, sizes: Sizes, excess: int, step: int) -> frozenset[int]:
    """Indexes of the oldest turns to drop so that the input has at least `excess` tokens less. If possible,
    `excess` is first rounded up to a multiple of `step`.

    Each new cut changes the beginning of the prompt, so the provider must process all text after the cut again.
    With whole steps, the cut stays the same until the session has grown by `step` tokens. Until then, the provider
    can read the text after the cut from its prompt cache.
    """
    found = groups(request.turns)
    may_go = sum(sizes.turns[place] for group in found if not group.kept for place in group.turns)
    whole = -(-excess // step) * step
    return drop_oldest(found, sizes.turns, whole if whole <= may_go else excess)


def _words(request: CompletionRequest, backend: Backend, bounds: Bounds) -> tuple[str, str]:
    """Two texts for an error message: the name of the limit that the request exceeds, and advice for the client."""
    if bounds.answer is None:
        return (
            "the team's policy allows",
            "Shorten the system prompt or the last message, or have context.max_input_tokens raised.",
        )
    remedy = f"Shorten {request.input_field}, or ask for fewer output tokens"
    if not bounds.trims:
        remedy += ", or let the gateway trim (context.enabled, without x-thriftgate-context: untouched)"
    room = f"{backend.window_tokens} tokens, {bounds.answer} of them for the answer"
    return f"the window of {backend.name} ({room}) allows", f"{remedy}, or use a backend with a larger window."
