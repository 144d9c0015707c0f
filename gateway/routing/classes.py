"""Routes requests that the grader cannot grade (tools, images, other languages, code), according to their traffic
class.

A cheaper backend serves a part of a traffic class. Comparisons of the team's own requests decide how large this part
is. A hash of the conversation decides which sessions belong to it. So a session changes its backend only when the part
grows or shrinks.
"""

from __future__ import annotations

from gateway.domain.policy import ModelRule
from gateway.domain.protocols import ClassTrials
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.class_trial import ClassTrial, TrialKey
from gateway.domain.routing.route import ClassDecision
from gateway.domain.tenant import Tenant
from gateway.domain.traffic import traffic_class
from gateway.routing.affinity.sessions import prefix_of
from gateway.routing.candidates import Demand
from gateway.routing.decision import Choice, by_cost, cheaper
from gateway.routing.strategy.strategy import share_of

_AFTER_TOOL = "after_tool"


def class_choice(
    choice: Choice,
    rule: ModelRule,
    request: CompletionRequest,
    tenant: Tenant,
    demand: Demand,
    session: str,
    trials: ClassTrials,
) -> tuple[Choice, ClassDecision | None]:
    """Apply the traffic class of a request without a grade to `choice`. Returns the new choice, and the decision about
    the class. The decision is None if no candidate is cheaper than the reference."""
    found = _decide(choice, rule, request, tenant, demand, session, trials)
    if found is None:
        return choice, None
    if not found.serves:
        return choice._replace(reason=f"{choice.reason}; {found.reason}"), found
    first = next(each for each in choice.order if each.backend.name == found.key.backend)
    order = (first, *(each for each in choice.order if each is not first))
    return choice._replace(order=order, reason=found.reason), found


def _decide(
    choice: Choice,
    rule: ModelRule,
    request: CompletionRequest,
    tenant: Tenant,
    demand: Demand,
    session: str,
    trials: ClassTrials,
) -> ClassDecision | None:
    """Decide whether a cheaper candidate serves the class. If none serves, the decision is about the candidate that
    should be compared next: the cheapest one that was not refused. None if no candidate is cheaper."""
    reference = choice.reference
    cheap = [
        each
        for each in choice.order
        if each is not reference and cheaper(each, reference) and not choice.ceiling.exceeded_by(each)
    ]
    if not cheap:
        return None
    name = traffic_class(request, demand.input.tokens)
    prefix = demand.prefix or prefix_of(request, tenant.key.lineage, session)
    place = share_of(prefix.session.hex(), b"class")
    next_one: ClassDecision | None = None
    for each in sorted(cheap, key=by_cost):
        key = TrialKey(tenant.team, name, each.backend.name, reference.backend.name, rule.quality)
        trial = trials.find(key)
        serves = trial is not None and place < _share(key, trial, trials)
        found = ClassDecision(key, trial, serves, rule.confidence)
        if found.serves:
            return found
        if next_one is None or (_refused(next_one) and not _refused(found)):
            next_one = found
    return next_one


def _refused(decision: ClassDecision) -> bool:
    return decision.trial is not None and decision.trial.waiting


def _share(key: TrialKey, trial: ClassTrial, trials: ClassTrials) -> float:
    """The share of sessions that the backend serves. A tool loop has requests of two classes: its first request, and
    requests with tool results. Since a tool loop stays at one backend, the smaller share of the two classes is used."""
    language, needs, step = key.traffic_class.split("/")
    if needs != "tools":
        return trial.share
    other = trials.find(key._replace(traffic_class=f"{language}/{needs}/{_other(step)}"))
    return trial.share if other is None else min(trial.share, other.share)


def _other(step: str) -> str:
    return "opening" if step == _AFTER_TOOL else _AFTER_TOOL
