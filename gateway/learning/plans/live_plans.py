"""Applies the stored states of plans. Routing uses the live plan. Plans on trial decide, too, but their decisions are
only recorded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.backend import RANK
from gateway.domain.protocols import Clock
from gateway.domain.routing.strategy import StrategyAnswer
from gateway.learning.plans import plan_trials
from gateway.learning.plans.plan_trials import CONFIGURED
from gateway.learning.plans.verdict import Outcome
from gateway.learning.shadow.sample import Sample
from gateway.ledger.store import evidence
from gateway.routing.candidates import Candidate
from gateway.routing.ceiling import Ceiling
from gateway.routing.decision import Choice
from gateway.routing.router import Router
from gateway.routing.strategy.planned import first_planned, in_domain
from gateway.runtime.tasks import Tasks, repeat
from gateway.state.sql.database import Database

if TYPE_CHECKING:
    from gateway.backends.fleet import Fleet
    from gateway.routing.strategy.plan import Plan

log = logging.getLogger(__name__)

INTERVAL_S = 5.0


class PlanTrials:
    """Applies the stored states of plans (on trial, live, previous) in one worker. All workers do this. If a state must
    change, the first worker that notices it stores the new state, and all workers apply it."""

    def __init__(
        self, database: Database, router: Router, fleet: Fleet, *, interval_s: float = INTERVAL_S, clock: Clock = time
    ) -> None:
        """`router.plans` must be the configured plans."""
        self._database, self._router, self._fleet = database, router, fleet
        self._interval_s, self._clock = interval_s, clock
        self._configured = router.plans
        self._live = CONFIGURED
        self._on_trial: dict[str, tuple[Plan, ...]] = {}
        """Id → plans that decide without being applied. These are the plan on trial and the plan that was live before.
        """
        self._decided: object = None
        """The states of all plans and the ids of the newest judged answers at the last check for due changes. While
        these are the same, no change can be due."""
        self._tasks = Tasks()

    async def open(self) -> None:
        self._tasks.spawn(self._follow(), "plans on trial")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def stats(self) -> dict[str, int | float | str]:
        return {"plans_on_trial": len(self._on_trial), "plan": self._live[:8]}

    async def _follow(self) -> None:
        # ValueError: an unreadable plan is ignored
        await repeat(self.refresh, self._interval_s, _troubled, SQLAlchemyError, ValueError)

    async def refresh(self) -> None:
        """Change the states of plans for which a change is due, then apply all stored states. Raises SQLAlchemyError,
        ArtefactError.
        """
        states = {one.state: one.id for one in await self._database.run(plan_trials.known, writes=False)}
        if states.keys() & {"live", "shadow"}:
            grounds = states, await self._database.run(evidence.newest, writes=False)
            if (
                grounds != self._decided
            ):  # with the same input, the write lock would be taken only to make the same decision
                now = self._clock.time()
                if done := await self._database.run(lambda connection: plan_trials.decide(connection, now)):
                    log.warning("plan on trial: %s", done)
                    states = {one.state: one.id for one in await self._database.run(plan_trials.known, writes=False)}
                self._decided = grounds
        live = states.get("live", CONFIGURED)
        if live != self._live:
            self._router.plans = self._configured if live == CONFIGURED else self._beside(await self._read(live))
            self._live = live
            log.warning("routing now uses plan %s", live[:16])
        on_trial = {states[state] for state in ("shadow", "previous") if state in states}
        self._on_trial = {id: self._on_trial.get(id) or (await self._read(id),) for id in on_trial}
        if live != CONFIGURED and "previous" not in states and self._configured:
            self._on_trial[CONFIGURED] = self._configured

    def _beside(self, live: Plan) -> tuple[Plan, ...]:
        """The live plan, together with the configured plans for other pools of models."""
        others = (plan for plan in self._configured if not set(plan.models) & set(live.models))
        return (live, *others)

    async def _read(self, id: str) -> Plan:
        from gateway.routing.strategy.plan_file import read_plan

        data = await self._database.run(lambda connection: plan_trials.body(connection, id), writes=False)
        return await asyncio.to_thread(read_plan, data, f"plan {id[:16]}")

    def outcomes(self, job: Sample, given: Sequence[StrategyAnswer], score: float) -> Mapping[str, Outcome]:
        """The outcomes of the plans for the judged request `job`: id of a plan → outcome. A plan is omitted if its
        outcome cannot be derived from the given answers. `given`: the answers that backends gave to the request.
        `score`: quality of every answer that is not the reference's.
        """
        if not self._on_trial:
            return {}
        found = {id: outcome(plans, job, given, score, self._fleet) for id, plans in self._on_trial.items()}
        found[self._live] = _served(job, score)
        return {id: one for id, one in found.items() if one is not None}


def outcome(
    plans: Sequence[Plan], job: Sample, given: Sequence[StrategyAnswer], score: float, fleet: Fleet
) -> Outcome | None:
    """The quality and cost that `plans` would have had for the judged request `job`. The first plan that applies
    decides as in serving: it sees the answer of a backend only after it has called the backend, and each call adds to
    the cost.

    `given`: the answers that backends gave to the request. `score`: quality of every answer that is not the
    reference's. None in three cases: the plan calls a backend without an answer in `given`; the reference is no longer
    configured; the route has no target quality.
    """
    route, record = job.record.route, job.record
    assert route is not None
    candidates = [
        Candidate(backend, one.excluded, "", one.cost_pico)
        for one in route.considered
        if (backend := fleet.get(one.backend)) is not None
    ]
    reference = next((each for each in candidates if each.backend.name == job.reference), None)
    if reference is None or route.quality is None:
        return None
    able = (reference, *(each for each in candidates if each is not reference and not each.excluded))
    subject = record.session or job.request.controls.session or job.request.id
    ceiling = Ceiling(route.ceiling_pico, RANK[reference.backend.tier])
    choice = Choice(able, reference, "", {}, ceiling)
    followed = in_domain(route.grade)
    tokens = route.input_tokens, route.output_tokens
    decide = partial(first_planned, plans, choice, candidates, job.request, route.quality, subject, tokens=tokens)
    found = decide() if followed else None
    if found is None:  # the plan makes no decision, so the reference is called
        return Outcome(1.0, float(reference.cost_pico or 0))
    costs = {each.backend.name: each.cost_pico for each in candidates}
    by_backend = {one.backend: one for one in given}
    answers: list[StrategyAnswer] = []
    names: Sequence[str] = found.asking.next(()) if found.asking else (found.choice.order[0].backend.name,)
    while names:
        if any(name not in by_backend for name in names):
            return None
        answers += [by_backend[name] for name in names]
        names = found.asking.next(answers) if found.asking else ()
    served = answers[found.asking.serves(answers) if found.asking else 0].backend
    cost = sum(costs.get(each.backend) or 0 for each in answers)
    return Outcome(1.0 if served == job.reference else score, float(cost))


def _served(job: Sample, score: float) -> Outcome | None:
    """The outcome of routing's own decision for the request `job`, whether it was applied or not. None if the first
    backend of the decision is neither the reference nor the backend that is evaluated."""
    route, record = job.record.route, job.record
    assert route is not None
    costs = {one.backend: one.cost_pico or 0 for one in route.considered}
    if route.decided is not None:
        first = route.decided.calls[0][0].name
        cost = sum(chance * costs.get(backend.name, 0) for backend, chance in route.decided.calls)
    else:
        first = record.served_by.backend.name if record.served_by else ""
        cost = float(sum(costs.get(attempt.backend.name, 0) for attempt in record.attempts))
    if first not in (job.reference, job.promise.backend):
        return None
    return Outcome(1.0 if first == job.reference else score, float(cost))


def _troubled(error: Exception) -> None:
    log.warning("plans on trial cannot be read, so the present plan is still used: %s", error)
