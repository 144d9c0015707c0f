"""The room's door: a request → the route it takes, with the reason and everything that was considered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from gateway.domain.backend import RANK, Backend, Kind
from gateway.domain.policy import ModelRule, Policy
from gateway.domain.protocols import FleetView, PriceList, Sampler
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.route import ContextEstimate, Grade, Route
from gateway.domain.tenant import Tenant
from gateway.errors import NoBackend
from gateway.routing.adequacy import Adequacy
from gateway.routing.candidates import SPEAKERS, Candidate, Demand, considered, examine, refusal
from gateway.routing.decide import Choice, by_cost, choose
from gateway.routing.grade import Grader
from gateway.routing.lengths import OutputLengths
from gateway.routing.names import Named, resolve


def speaks(dialect: DialectName, kind: Kind) -> bool:
    return kind in SPEAKERS[dialect]


class Router:
    """Stateless but for learned output lengths and counters; every decision follows from its arguments."""

    def __init__(
        self,
        grader: Grader,
        prices: PriceList,
        fleet: FleetView,
        backends: Sequence[Backend],
        *,
        sampler: Sampler | None = None,
        speaks: Callable[[DialectName, Kind], bool] = speaks,
    ) -> None:
        self._grader, self._prices, self._fleet, self._sampler = grader, prices, fleet, sampler
        self._backends = tuple(backends)
        self._adequacy = Adequacy(grader.artefact.curves)
        self._speaks = speaks
        self._lengths = OutputLengths()
        self._counts = {"routed": 0, "to_reference": 0, "abstained": 0, "escalatable": 0, "observed": 0, "refused": 0}

    async def route(
        self, request: CompletionRequest, tenant: Tenant, estimate: ContextEstimate, record: Record
    ) -> Route:
        """Also sets `record.route` and `record.difficulty`.

        Raises UnknownModel, NoBackend, NoAdequateBackend, ContextTooLong, or Forbidden for the data rule.
        """
        route = self.decide(request, tenant, estimate, record.session)
        record.route = route
        record.difficulty = route.grade.difficulty if route.grade else None
        return route

    def decide(self, request: CompletionRequest, tenant: Tenant, estimate: ContextEstimate, session: str = "") -> Route:
        """The decision without a record, as `explain` needs it. Raises as `route` does."""
        if not self._backends:
            raise NoBackend(
                "No backend is configured. Name one under `backends:` in gateway.yaml, set a provider's key such as "
                "OPENAI_API_KEY, or install the local model (`pip install thriftgate[local]`, "
                "`thriftgate model fetch`). `thriftgate doctor` shows what this machine has."
            )
        named = resolve(request.model, tenant.policy, self._backends)
        demand = self._demand(request, tenant, estimate, named)
        candidates = examine(named.backends, demand, self._prices, self._fleet, self._speaks)
        able = [each for each in candidates if not each.excluded]
        if not able:
            self._counts["refused"] += 1
            raise refusal(candidates, named.missing)
        self._counts["routed"] += 1
        if named.rule is None or demand.tier:
            return _as_asked(candidates, able, demand)
        return self._by_rule(named.rule, candidates, request, tenant.policy, demand, session)

    def learn(self, record: Record) -> None:
        """Take the length of a finished answer into account for later costs."""
        self._lengths.learn(record)

    def stats(self) -> dict[str, int | float | str]:
        return {**self._counts, "lengths_known": len(self._lengths)}

    def _demand(self, request: CompletionRequest, tenant: Tenant, estimate: ContextEstimate, named: Named) -> Demand:
        expected = self._lengths.expected(tenant.team, request.model, request.max_output_tokens)
        return Demand(
            request.dialect,
            request.needs if named.rule else frozenset(),  # a backend asked for itself may refuse for itself
            estimate.tokens,
            estimate.least,
            expected * request.parallel,
            request.max_output_tokens,
            tenant.policy.data,
            request.controls.tier,
        )

    def _by_rule(
        self,
        rule: ModelRule,
        candidates: Sequence[Candidate],
        request: CompletionRequest,
        policy: Policy,
        demand: Demand,
        session: str,
    ) -> Route:
        several = sum(not each.excluded for each in candidates) > 1
        grade = self._grader.grade_turns(request.turns, request.needs) if several else None
        choice = choose(candidates, rule.reference, grade, rule.quality, self._adequacy)
        served, why = self._override(choice, request, policy, session or request.controls.session or request.id)
        order = choice.order if served is None else (served, *(each for each in choice.order if each is not served))
        stronger = None if served else _stronger(choice, rule, request)
        self._count(choice, grade, served, stronger)
        return Route(
            tuple(each.backend for each in order),
            why or choice.reason,
            escalate_to=stronger,
            escalate_below=rule.confidence if stronger else 0.0,
            grade=grade,
            reference=choice.reference.backend,
            considered=tuple(considered(each, choice.adequacies.get(each.backend.name)) for each in candidates),
            observed=choice.order[0].backend if served else None,
            input_tokens=demand.input_tokens,
            output_tokens=demand.output_tokens,
        )

    def _override(
        self, choice: Choice, request: CompletionRequest, policy: Policy, subject: str
    ) -> tuple[Candidate | None, str]:
        """Who serves in spite of the decision, and why: observing, outside the share, or held out to compare."""
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


def share_of(subject: str) -> float:
    """A stable place in 0..1 for a session or request, so that a conversation stays on one side."""
    return int.from_bytes(blake2b(subject.encode(), digest_size=7).digest()) / 2**56


def _as_asked(candidates: Sequence[Candidate], able: Sequence[Candidate], demand: Demand) -> Route:
    """Cheapest first among the backends that the client named, by name, model or tier."""
    return Route(
        tuple(each.backend for each in sorted(able, key=by_cost)),
        f"the request asks for tier {demand.tier}" if demand.tier else "asked for by name",
        considered=tuple(considered(each) for each in candidates),
        input_tokens=demand.input_tokens,
        output_tokens=demand.output_tokens,
    )


def _asked_for(choice: Choice, model: str) -> Candidate:
    """The backend that the app would have had without the gateway, else the reference."""
    same = (each for each in choice.order if model in (each.backend.name, each.backend.model))
    return next(same, choice.reference)


def _stronger(choice: Choice, rule: ModelRule, request: CompletionRequest) -> Backend | None:
    """Whom to ask when the small backend's answer is unsure; only a plain, single answer can be taken back."""
    chosen, reference = choice.order[0].backend, choice.reference.backend
    unsure = rule.escalate and chosen.tier == "small" and "logprobs" in chosen.capabilities
    plain = not request.stream and request.parallel == 1
    return reference if unsure and plain and RANK[reference.tier] > RANK[chosen.tier] else None
