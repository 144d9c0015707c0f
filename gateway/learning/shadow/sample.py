"""Selects the answers to compare, and the backend with which each is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from gateway.backends.cascade.schemas import Expected
from gateway.backends.cascade.weak_signals import weakness
from gateway.dialects.clients import DIALECTS
from gateway.dialects.facts import FACTS
from gateway.dialects.registry import wire
from gateway.domain.answer import Answer
from gateway.domain.protocols import Evidence
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.class_trial import ClassTrial, Comparison, TrialKey
from gateway.domain.routing.route import ClassDecision, Considered, Route
from gateway.ledger.store.evidence import CLASS, Finding
from gateway.ledger.store.samples import KeptSample

Source = Literal["shadow", "probe", "holdout", "observe", "cascade", "escalation", "class"]

MOST_BYTES = 256 * 2**10
"""Maximum bytes of the body of a request that is compared. Samples are kept in memory and are parsed again."""
AGREED = 0.5
"""Weight of a comparison with the answer that a cascade served, if that answer is not the reference's."""
_KEPT = ("messages", "tools", "tool_choice", "response_format")
"""The fields of a request that are stored."""
_HOSTED = frozenset({"mcp_servers", "web_search_options", "container"})
"""Request fields that make the provider itself do something, such as searching the web or running a tool."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A backend that is evaluated, and the quality that is expected of its answer to this request."""

    backend: str
    predicted: float
    target: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A comparison to make. It contains a prompt and an answer, so it is kept only in memory."""

    record: Record
    request: CompletionRequest
    """The request as it was served. `plain` makes the request for the comparison from it."""
    source: Source
    promise: Promise
    reference: str
    asks: str
    """The backend that must still be called: the backend to evaluate, or the reference."""
    served: Sequence[Mapping[str, Any]]
    """The answer of the backend that served the request: choices as in a chat completion."""
    finish: str
    output_tokens: int
    trial: Comparison | None = None
    """For the trial of a traffic class: the comparison, still without a score."""

    @property
    def key(self) -> TrialKey:
        """The traffic-class trial to which the comparison belongs. Raises AssertionError if there is none."""
        route = self.record.route
        assert route is not None
        assert route.by_class is not None
        return route.by_class.key

    def finding(self, judge: str, score: float, plans: Mapping[str, Any]) -> Finding:
        """The result of the comparison, in the form in which it is stored. `judge`: name of the judge. `plans`:
        outcomes of plans on trial."""
        promise, record = self.promise, self.record
        return Finding(
            record.request_id, record.tenant.team, promise.backend, self.reference, self.source, judge,
            promise.predicted, promise.target, score, plans=plans, traffic_class=record.traffic_class,
        )  # fmt: skip


def choices_of(answer: Answer, dialect: DialectName) -> Sequence[Mapping[str, Any]] | None:
    """The choices of the answer in the format of a chat completion; None if the answer is incomplete."""
    body = answer.completion() if answer.complete else None
    return None if body is None else answer.choices or DIALECTS[dialect].choices(orjson.loads(body))


def sample(
    request: CompletionRequest, record: Record, answer: Answer, learned: Evidence, drawn: float
) -> Sample | None:
    """The comparison to make for a served answer; None if there is nothing to compare. `drawn`: a random number 0..1.
    If the reference served the request, this number selects the backend that is evaluated."""
    route, attempt = record.route, answer.attempt
    if route is None or route.reference is None or attempt is None or not repeatable(request) or not answer.complete:
        return None
    served, reference = attempt.backend.name, route.reference.name
    source, backend = _in_question(route, served, drawn, learned, record.tenant.team)
    promise = None if backend is None else promised(route, backend, learned, record.tenant.team)
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


def class_sample(
    request: CompletionRequest, record: Record, answer: Answer, by: ClassDecision, drawn: float
) -> Sample | None:
    """The comparison to make for the trial of a traffic class; None if the answer cannot be compared. `by`: the
    decision about the class. `drawn`: a random number 0..1, which selects the answers that are really compared. If
    the backend on trial served an answer that is neither selected nor weak, this answer is returned only to be
    counted.
    """
    attempt, key = answer.attempt, by.key
    if attempt is None or not answer.complete or not repeatable(request):
        return None
    name = attempt.backend.name
    served = name == key.backend
    if not served and name != key.reference:
        return None
    selected = drawn < share_to_compare(by, record.tenant.policy.trials.classes, served=served)
    if not selected and not served:
        return None
    choices = choices_of(answer, request.dialect)
    if choices is None:
        return None
    weak = served and looks_weak(request, answer, choices, by.confidence)
    usage = attempt.usage
    return Sample(
        record, request, CLASS, Promise(key.backend, key.target, key.target), key.reference,
        key.reference if served else key.backend, choices, answer.finish,
        usage.all_output if usage else attempt.chunks, Comparison(None, served, weak, selected),
    )  # fmt: skip


def share_to_compare(by: ClassDecision, learning: float, *, served: bool) -> float:
    """The share of answers to compare for the trial of a traffic class. `by`: the decision about the class.
    `learning`: the share in the policy. `served`: whether the backend on trial served the answer.
    """
    trial = by.trial or ClassTrial(by.key.target)
    return trial.compare_share(learning, served=served)


def looks_weak(
    request: CompletionRequest, answer: Answer, choices: Sequence[Mapping[str, Any]], confidence: float
) -> bool:
    """Return whether the answer has a sign of weakness that can be found without a further call: it is invalid,
    refused, empty, cut or repetitive, or its mean token probability is below `confidence`."""
    attempt = answer.attempt
    found = None if attempt is None else attempt.confidence
    if found is not None and found < confidence:
        return True
    message = choices[0].get("message") if choices else None
    message = message if isinstance(message, Mapping) else {}
    limited = request.max_output_tokens is not None
    return bool(weakness(message, answer.finish, Expected(request), limited=limited))


def repeatable(request: CompletionRequest) -> bool:
    """Return whether the request can safely be sent to a second backend. It cannot if the provider would do more than
    answer, such as run tools or store the response. Large requests, and requests for several answers, are not repeated
    either."""
    if not FACTS[request.dialect].repeatable or request.parallel != 1 or request.body.get("store"):
        return False
    if len(request.raw) > MOST_BYTES:
        return False
    tools = request.body.get("tools") or []
    functions = all(type(tool) is dict and tool.get("type", "custom") in ("function", "custom") for tool in tools)
    return functions and request.body.keys().isdisjoint(_HOSTED)


def plain(request: CompletionRequest) -> CompletionRequest:
    """A copy of the request without streaming and with batch priority."""
    body = {name: value for name, value in request.body.items() if name not in ("stream", "stream_options")}
    controls = request.controls._replace(priority="batch")
    return DIALECTS[request.dialect].parse(orjson.dumps(body), request.id, controls, request.headers)


def kept(job: Sample, other: Sequence[Mapping[str, Any]], finish: str, judge: str, score: float | None) -> KeptSample:
    """The parts of a comparison that are stored: the request and both answers, without names of keys and end users.
    `other`, `finish`: the answer of the backend that was called for the comparison."""
    sent = orjson.loads(wire(job.request.dialect, "openai_chat").body(plain(job.request), "", None))
    request = {name: sent[name] for name in _KEPT if name in sent}
    served = job.reference if job.asks == job.promise.backend else job.promise.backend
    answers = [
        {"backend": served, "choices": list(job.served), "finish": job.finish},
        {"backend": job.asks, "choices": list(other), "finish": finish},
    ]
    answers.sort(key=lambda answer: answer["backend"] != job.reference)
    return KeptSample(job.record.request_id, job.record.traffic_class, request, answers, judge, score)


def _in_question(route: Route, served: str, drawn: float, learned: Evidence, team: str) -> tuple[Source, str | None]:
    """The purpose of the comparison (its `source` in the evidence), and the backend that is evaluated; None instead of
    a backend if there is none to evaluate. `served`: the backend that served the request. `drawn`: a random number
    0..1.
    """
    assert route.reference is not None
    decided = route.decided
    if decided is not None:
        first = decided.calls[0][0].name
        looked_on: Source = "holdout" if served == route.reference.name else "observe"
        return looked_on, first if first != served else None
    if served != route.reference.name:
        return "shadow", served
    return "probe", _probed(route, drawn, learned, team)


def _probed(route: Route, drawn: float, learned: Evidence, team: str) -> str | None:
    """Select one of the cheaper backends that routing did not choose, by the random number `drawn`. If some of them
    were measured to be below the target quality, one of these is selected, because it may have recovered. Otherwise any
    of them may be selected, because the quality assumed for it may be too low."""
    able = [one for one in route.considered if _may_be_probed(one, route)]
    wanting = [one for one in able if learned.adjust(team, one.backend).margin]
    among = wanting or able
    return among[min(int(drawn * len(among)), len(among) - 1)].backend if among else None


def _may_be_probed(one: Considered, route: Route) -> bool:
    assert route.reference is not None
    if one.excluded or one.adequacy is None or one.backend == route.reference.name or one.cost_pico is None:
        return False
    costs = {each.backend: each.cost_pico for each in route.considered}
    dear = costs.get(route.reference.name)
    return dear is not None and one.cost_pico < dear


def promised(route: Route, backend: str, learned: Evidence, team: str) -> Promise | None:
    """The quality that is expected of `backend`; None if there is no estimate."""
    adequacies = {one.backend: one.adequacy for one in route.considered}
    adequacy = adequacies.get(backend)
    if adequacy is None or route.quality is None or route.reference is None:
        return None
    best = adequacies.get(route.reference.name)
    adequacy = min(1.0, adequacy / best) if best else adequacy  # relative to the reference, if its quality is known
    return Promise(backend, learned.adjust(team, backend).prior(adequacy), min(adequacy, route.quality))


def cascaded(record: Record, answer: Answer, learned: Evidence) -> Finding | None:
    """Judge the first answer of a cascade by the later answers of the same cascade, without a further call. The later
    answers are not judged: whether a later backend is called depends on the earlier answers, so they are not a random
    sample.

    If the cascade continued because the first answer was weak, the result has weight 0. It is stored only to show how
    often it was unnecessary to continue.
    """
    route, attempt, answers = record.route, answer.attempt, record.answers
    if route is None or attempt is None or len(answers) < 2:
        return None
    first, served = answers[0], next((one for one in answers if one.backend == attempt.backend.name), None)
    promise = promised(route, first.backend, learned, record.tenant.team)
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
        traffic_class=record.traffic_class,
    )  # fmt: skip
