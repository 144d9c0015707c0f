"""Chooses which served answers to compare, and with which backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from gateway.dialects.clients import DIALECTS
from gateway.dialects.facts import FACTS
from gateway.domain.answer import Answer
from gateway.domain.protocols import Evidence
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import Considered, Route
from gateway.ledger.store.evidence import Finding

Source = Literal["shadow", "probe", "holdout", "observe", "cascade", "escalation"]

MOST_BYTES = 256 * 2**10
"""Of a request that is compared: what waits in memory and is parsed again is bounded."""
AGREED = 0.5
"""Weight of an answer that was compared with what a cascade served, where that is not the reference's own."""
_HOSTED = frozenset({"mcp_servers", "web_search_options", "container"})
"""Fields by which the provider itself acts."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A backend in question, and what was expected of its answer to this request."""

    backend: str
    predicted: float
    target: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One comparison to be made. It holds a prompt and an answer, and lives in memory only."""

    record: Record
    request: CompletionRequest
    """As it was asked; `plain` makes the second question of it."""
    source: Source
    promise: Promise
    reference: str
    asks: str
    """The one of the two that has not answered yet."""
    served: Sequence[Mapping[str, Any]]
    """The other's answer: choices as in a chat completion."""
    finish: str
    output_tokens: int

    def finding(self, judge: str, score: float, plans: Mapping[str, Any]) -> Finding:
        """`plans`: what plans on trial would have made of it."""
        promise, record = self.promise, self.record
        return Finding(
            record.request_id, record.tenant.team, promise.backend, self.reference, self.source, judge,
            promise.predicted, promise.target, score, plans=plans,
        )  # fmt: skip


def choices_of(answer: Answer, dialect: DialectName) -> Sequence[Mapping[str, Any]] | None:
    """As in a chat completion; None where it is not whole."""
    body = answer.completion() if answer.complete else None
    return None if body is None else answer.choices or DIALECTS[dialect].choices(orjson.loads(body))


def sample(request: CompletionRequest, record: Record, answer: Answer, learnt: Evidence, drawn: float) -> Sample | None:
    """None if there is nothing to compare. `drawn`: 0..1, selects the backend to probe."""
    route, attempt = record.route, answer.attempt
    if route is None or route.reference is None or attempt is None or not repeatable(request) or not answer.complete:
        return None
    served, reference = attempt.backend.name, route.reference.name
    source, backend = _in_question(route, served, drawn, learnt, record.tenant.team)
    promise = None if backend is None else promised(route, backend, learnt, record.tenant.team)
    if promise is None:
        return None
    choices = choices_of(answer, request.dialect)
    if choices is None:
        return None
    usage = attempt.usage
    return Sample(
        record, request, source, promise, served if source in ("holdout", "observe", "probe") else reference,
        promise.backend if served != promise.backend else reference, choices, answer.finish,
        usage.all_output if usage else attempt.chunks,
    )  # fmt: skip


def repeatable(request: CompletionRequest) -> bool:
    """May it be asked twice? Not where a provider acts on it: tools of its own, what it keeps."""
    if not FACTS[request.dialect].repeatable or request.parallel != 1 or request.body.get("store"):
        return False
    if len(request.raw) > MOST_BYTES:
        return False
    tools = request.body.get("tools") or []
    functions = all(type(tool) is dict and tool.get("type", "custom") in ("function", "custom") for tool in tools)
    return functions and request.body.keys().isdisjoint(_HOSTED)


def plain(request: CompletionRequest) -> CompletionRequest:
    """The same question, its answer in one piece and at leisure."""
    body = {name: value for name, value in request.body.items() if name not in ("stream", "stream_options")}
    controls = replace(request.controls, priority="batch")
    return DIALECTS[request.dialect].parse(orjson.dumps(body), request.id, controls, request.headers)


def _in_question(route: Route, served: str, drawn: float, learnt: Evidence, team: str) -> tuple[Source, str | None]:
    """The backend whose answer is in doubt beside the trusted one; None: there is none."""
    assert route.reference is not None
    decided = route.decided
    if decided is not None:
        first = decided.calls[0][0].name
        looked_on: Source = "holdout" if served == route.reference.name else "observe"
        return looked_on, first if first != served else None
    if served != route.reference.name:
        return "shadow", served
    return "probe", _probed(route, drawn, learnt, team)


def _probed(route: Route, drawn: float, learnt: Evidence, team: str) -> str | None:
    """Of the cheaper ones that the decision passed over: who was found wanting may have recovered, and of others the
    prior may think too little."""
    able = [one for one in route.considered if _may_be_probed(one, route)]
    wanting = [one for one in able if learnt.adjust(team, one.backend).margin]
    among = wanting or able
    return among[min(int(drawn * len(among)), len(among) - 1)].backend if among else None


def _may_be_probed(one: Considered, route: Route) -> bool:
    assert route.reference is not None
    if one.excluded or one.adequacy is None or one.backend == route.reference.name or one.cost_pico is None:
        return False
    costs = {each.backend: each.cost_pico for each in route.considered}
    dear = costs.get(route.reference.name)
    return dear is not None and one.cost_pico < dear


def promised(route: Route, backend: str, learnt: Evidence, team: str) -> Promise | None:
    """What was expected of `backend`; None where nothing was."""
    said = {one.backend: one.adequacy for one in route.considered}
    adequacy = said.get(backend)
    if adequacy is None or route.quality is None or route.reference is None:
        return None
    best = said.get(route.reference.name)
    adequacy = min(1.0, adequacy / best) if best else adequacy  # where each one's own quality is what is known
    return Promise(backend, learnt.adjust(team, backend).prior(adequacy), min(adequacy, route.quality))


def cascaded(record: Record, answer: Answer, learnt: Evidence) -> Finding | None:
    """What several answers to one request show of the first one, for nothing.

    Only of the first: whether others are asked depends on what was said before, so their answers are no fair sample.
    Where it was asked on because the first was unsure, sound answers are not compared: that counts nothing (weight 0),
    and says only how often asking on was for nothing.
    """
    route, attempt, told = record.route, answer.attempt, record.answers
    if route is None or attempt is None or len(told) < 2:
        return None
    first, served = told[0], next((one for one in told if one.backend == attempt.backend.name), None)
    promise = promised(route, first.backend, learnt, record.tenant.team)
    if served is None or promise is None or first.vote is None or served.vote is None or served.weak:
        return None
    reference = attempt.backend.name
    sure = route.reference is not None and reference == route.reference.name and reference != promise.backend
    weight = 1.0 if sure else AGREED
    source: Source = "cascade"
    if first.weak:
        source, weight = "escalation", 0.0
    return Finding(
        record.request_id, record.tenant.team, promise.backend, reference, source, "agreement",
        promise.predicted, promise.target, float(first.vote == served.vote), weight,
    )  # fmt: skip
