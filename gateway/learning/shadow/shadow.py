"""Compares served answers in the background: calls another backend, and lets a judge compare both answers."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from gateway.backends.cascade.weak_signals import Reader
from gateway.domain.answer import Answer
from gateway.domain.backend import Backend
from gateway.domain.protocols import Clock, Evidence, PriceList
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Route
from gateway.domain.tenant import Tenant
from gateway.errors import BudgetExhausted, GatewayError
from gateway.learning.background_call import buy
from gateway.learning.class_trials import LiveTrials
from gateway.learning.cost_hold import KIND
from gateway.learning.judges import JUDGES, Blind, Choices, Judge, Structured
from gateway.learning.plans.live_plans import PlanTrials
from gateway.learning.plans.plan_trials import written
from gateway.learning.shadow.holdout import Holdout
from gateway.learning.shadow.sample import Sample, cascaded, choices_of, class_sample, kept, plain, sample
from gateway.learning.spend_cap import SpendCap
from gateway.ledger.store import samples
from gateway.ledger.store.evidence import Finding, write
from gateway.ledger.store.samples import KeptSample
from gateway.pipeline import Pipeline
from gateway.routing.candidates import may_go_to
from gateway.routing.strategy.strategy import share_of
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

QUEUE = 100
"""Maximum number of samples that wait. Further samples are dropped."""
AT_A_TIME = 2
SPARE_OUTPUT, TIMES = 512, 2
"""Limit for the answer of the other backend: `TIMES` times the tokens of the served answer, plus `SPARE_OUTPUT`
tokens."""


TIDY_S = 600.0
"""Seconds between two deletions of expired samples."""


class Shadows:
    """Implements `Sampler` of domain/protocols.py. An error here can only lose a comparison, and never affects a
    request."""

    def __init__(
        self,
        database: Database,
        prices: PriceList,
        spend_cap: SpendCap,
        learned: Evidence,
        holdout: Holdout,
        trials: LiveTrials | None = None,
        *,
        clock: Clock = time,
    ) -> None:
        self._trials = trials or LiveTrials(database)
        self._database, self._prices, self._spend_cap = database, prices, spend_cap
        self._learned, self._holdout, self._clock = learned, holdout, clock
        self._plans: PlanTrials | None = None
        self._queue: asyncio.Queue[Sample | Finding] = asyncio.Queue(QUEUE)
        self._tasks = Tasks()
        counted = ("offered", "dropped", "compared", "undecided", "unpaid", "failed", "weak", "kept", "unkept")
        self._counts = dict.fromkeys(counted, 0)

    async def open(self, pipeline: Pipeline, plans: PlanTrials | None = None) -> None:
        """Start to compare answers. Answers that were offered before this call are compared, too. `plans`: gets every
        judged request.
        """
        self._plans = plans
        for number in range(AT_A_TIME):
            self._tasks.spawn(self._work(pipeline), f"comparing {number}")
        self._tasks.spawn(self._tidy(), "kept samples")

    async def aclose(self) -> None:
        """Drop the samples that wait. Calls in progress are recorded in the ledger as interrupted."""
        await self._tasks.aclose()

    async def idle(self) -> None:
        """Wait until all answers that were offered so far have been processed."""
        await self._queue.join()

    def stats(self) -> dict[str, int | float | str]:
        return {**self._counts, "waiting": self._queue.qsize(), **self._holdout.stats()}

    def holdout(self, request: CompletionRequest) -> bool:
        return self._holdout.holdout(request)

    def offer(self, request: CompletionRequest, record: Record, answer: Answer) -> None:
        """Offer a served answer for comparison. A hash selects a share of the answers. If an answer is not selected,
        nothing else is computed for it, with one exception: if a traffic class chose its backend, it is checked for
        signs of weakness. If the shares in the policy are 0, this method does nothing.
        """
        trials = record.tenant.policy.trials
        if not (record.answers or trials.share or trials.classes):
            return
        try:
            found = self._wanted(request, record, answer)
        except Exception:  # an answer that cannot be read is not compared
            log.exception("a served answer could not be sampled for comparison")
            return
        if found is None:
            return
        self._counts["offered"] += 1
        try:
            self._queue.put_nowait(found)
        except asyncio.QueueFull:
            self._counts["dropped"] += 1

    def _wanted(self, request: CompletionRequest, record: Record, answer: Answer) -> Sample | Finding | None:
        if record.answers and (found := cascaded(record, answer, self._learned)) is not None:
            return found
        if record.route is not None and (by := record.route.by_class) is not None:
            return self._of_class(class_sample(request, record, answer, by, share_of(record.request_id, b"compare")))
        share = record.tenant.policy.trials.share
        drawn = share_of(record.request_id, b"compare") if share else 1.0
        if drawn >= share:
            return None
        return sample(request, record, answer, self._learned, drawn / share)

    def _of_class(self, found: Sample | None) -> Sample | None:
        if found is None or (seen := found.trial) is None:
            return None
        self._counts["weak"] += seen.weak
        if seen.drawn or seen.weak:
            return found
        self._trials.count_sound(found.key)
        return None

    async def _work(self, pipeline: Pipeline) -> None:
        while True:
            job = await self._queue.get()
            try:
                finding = job if isinstance(job, Finding) else await self._finding(job, pipeline)
                if finding is not None:
                    await self._database.run(partial(write, findings=[finding], now=self._clock.time()))
                    self._counts["compared"] += 1
            except BudgetExhausted:
                self._counts["unpaid"] += 1
            except (GatewayError, SQLAlchemyError, TimeoutError) as error:
                self._counts["failed"] += 1
                log.info("an answer was not compared: %s", error)
            except Exception:
                self._counts["failed"] += 1
                log.exception("an answer could not be compared")
            finally:
                self._queue.task_done()

    async def _finding(self, job: Sample, pipeline: Pipeline) -> Finding | None:
        try:
            found = await self._compare(job, pipeline)
        except BudgetExhausted:
            if job.trial is not None and job.trial.weak:  # without a comparison, count it as worse
                await self._trials.see(job.key, job.trial._replace(score=0.0))
            raise
        if found is None:
            return None
        self._counts["undecided"] += found.score is None
        if job.trial is not None:
            await self._trials.see(job.key, job.trial._replace(score=found.score))
        return None if found.score is None else job.finding(found.judge, found.score, found.plans)

    async def _compare(self, job: Sample, pipeline: Pipeline) -> _Compared | None:
        """Compare a sample. Returns the verdict; None if the other backend cannot be called, or if its answer is
        incomplete."""
        backend = pipeline.fleet.get(job.asks)
        if backend is None or not _open(backend, job.record.tenant) or not pipeline.fleet.state(backend).available:
            return None
        calls = _Calls(pipeline, self._spend_cap, self._prices, job)
        judge = _judge(pipeline, job, calls)
        if judge is None:
            return None
        answered = await calls.ask(backend, plain(job.request), TIMES * job.output_tokens + SPARE_OUTPUT)
        if answered is None:
            return None
        other, finish = answered
        doubtful = job.asks == job.promise.backend
        one, trusted, ended = (other, job.served, finish) if doubtful else (job.served, other, job.finish)
        score = await judge.compare(job.request, one, trusted, ended)
        plans = {} if score is None or job.trial is not None else self._outcomes(job, other, finish, score)
        if job.record.tenant.policy.data.store_samples is not None:
            await self._keep(kept(job, other, finish, judge.name, score), job.record.tenant)
        return _Compared(judge.name, score, plans)

    async def _keep(self, sample: KeptSample, tenant: Tenant) -> None:
        """Store a compared request for learning. If this fails, for example because the disk is full, only the sample
        is lost."""
        now, lives_s = self._clock.time(), tenant.policy.data.store_samples or 0.0
        try:
            await self._database.run(lambda link: samples.keep(link, tenant.team, sample, now, now + lives_s))
            self._counts["kept"] += 1
        except SQLAlchemyError as error:
            self._counts["unkept"] += 1
            log.warning("a sample for learning could not be stored: %s", error)

    async def _tidy(self) -> None:
        while True:
            try:
                await self._database.run(lambda link: samples.tidy(link, self._clock.time()))
            except SQLAlchemyError as error:
                log.warning("expired samples could not be deleted: %s", error)
            await asyncio.sleep(TIDY_S)

    def _outcomes(self, job: Sample, other: Choices, finish: str, score: float) -> dict[str, Any]:
        if self._plans is None:
            return {}
        reader = Reader(job.request)
        served = job.reference if job.asks == job.promise.backend else job.promise.backend
        answers = [
            reader.answered(served, job.served, job.finish, None),
            reader.answered(job.asks, other, finish, None),
        ]
        return written(self._plans.outcomes(job, answers, score))


class _Compared(NamedTuple):
    """The verdict of a judge. `score`: None if it is undecided. `plans`: outcomes of plans on trial."""

    judge: str
    score: float | None
    plans: dict[str, Any]


class _Calls:
    """Makes the calls of one comparison. They are recorded in the ledger next to the attempts of the served request."""

    def __init__(self, pipeline: Pipeline, spend_cap: SpendCap, prices: PriceList, job: Sample) -> None:
        self._pipeline, self._spend_cap, self._prices, self._job = pipeline, spend_cap, prices, job
        self._before = len(job.record.attempts)

    async def ask(self, backend: Backend, request: CompletionRequest, most: int) -> tuple[Choices, str] | None:
        """Call the backend. Returns (choices, finish reason) of its answer; None if the answer is incomplete. `most`:
        maximum output tokens of the answer. Raises GatewayError, SQLAlchemyError.
        """
        of = self._job.record
        record = Record(
            of.request_id, of.tenant, backend.name, request.dialect, False, session=of.session, tags=of.tags,
            end_user=of.end_user, difficulty=of.difficulty, kind=KIND, before=self._before,
            traffic_class=of.traffic_class,
        )  # fmt: skip
        try:
            route = Route((backend,), "called for a comparison")
            answer = await buy(self._pipeline, self._spend_cap, self._prices, route, request, record, most)
        finally:
            self._before += len(record.attempts)
        choices = choices_of(answer, request.dialect)
        return None if choices is None else (choices, answer.finish)

    async def judge(self, backend: Backend, request: CompletionRequest) -> Choices | None:
        answered = await self.ask(backend, request, Blind.tokens)
        return None if answered is None else answered[0]


def _judge(pipeline: Pipeline, job: Sample, calls: _Calls) -> Judge | None:
    """The judge that the policy names. None if the policy names an unknown backend, or a backend that the policy's
    data rule forbids.
    """
    tenant = job.record.tenant
    name = tenant.policy.trials.judge
    if known := JUDGES.get(name):
        return Structured(known())
    backend = pipeline.fleet.get(name)
    if backend is None or not _open(backend, tenant):
        return None
    return Structured(Blind(backend.name, partial(calls.judge, backend)))


def _open(backend: Backend, tenant: Tenant) -> bool:
    """Return whether the tenant's prompts may be sent to `backend`, by the policy's data rule and the tenant's access
    to backends."""
    return may_go_to(backend, tenant.policy.data) and not (tenant.access and tenant.access.excludes(backend))
