"""Chooses the cheapest candidate that is good enough. If no candidate is good enough, the reference is chosen. Works
with plain values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from gateway.domain.backend import RANK
from gateway.domain.routing.learned import NOTHING, Learned
from gateway.domain.routing.route import Grade
from gateway.routing.candidates import Candidate
from gateway.routing.ceiling import Ceiling
from gateway.routing.difficulty.adequacy import Adequacy, Gap, gap


class Choice(NamedTuple):
    """The result of a decision. `order`: the candidates in the order of calls; all but the first are fallbacks.
    `reference`: the candidate whose quality the policy aims at. `adequacies`: backend → probability that its answer is
    as good as the reference's."""

    order: tuple[Candidate, ...]
    reference: Candidate
    reason: str
    adequacies: dict[str, float]
    ceiling: Ceiling


def choose(
    candidates: Sequence[Candidate],
    named: str | None,
    grade: Grade | None,
    quality: float,
    adequacy: Adequacy | None,
    learnt: Mapping[str, Learned] = MappingProxyType({}),
    ceiling: Ceiling | None = None,
) -> Choice:
    """Choose among `candidates`; at least one of them must be able to serve the request. `named`: the policy's
    reference. `quality`: share of answers (0 to 1) that must be as good as the reference's. `adequacy`: converts a
    grade to probabilities; needed if there is a `grade`.

    `learnt`: backend → evidence from the team's own answers. `ceiling`: cost of the model that the client named; None:
    the reference's cost is the limit.
    """
    nominal = _nominal(candidates, named)
    limit = ceiling or Ceiling(nominal.booked_pico, RANK[nominal.backend.tier])
    reference = _within(candidates, nominal, limit)
    others = [each for each in candidates if not each.excluded and each is not reference]
    gaps: dict[str, Gap] = {
        each.backend.name: gap(each.backend, reference.backend, each.worth_pico, reference.worth_pico)
        for each in others
    }
    # the ceiling is in the ledger's terms, where a backend that is paid already may be dearer
    cheap = [each for each in others if cheaper(each, reference) and not limit.exceeded_by(each)]
    weaker = {far for each in cheap if (far := gaps[each.backend.name]) != "equal"}
    loss = (1 - quality) / max(len(weaker), 1)
    adequacies: dict[str, float] = {}
    good: list[Candidate] = []
    if grade is not None and not grade.abstained and adequacy is not None:
        known = {name: learnt.get(name, NOTHING) for name in gaps}
        adequacies = {name: known[name].adequacy(adequacy.of(far, grade.difficulty)) for name, far in gaps.items()}
        good = [
            each
            for each in cheap
            if adequacy.enough(gaps[each.backend.name], grade.difficulty, loss, known[each.backend.name])
        ]
        good.sort(key=by_cost)
    better = {each.backend.name for each in good}
    rest = [each for each in others if each.backend.name not in better]
    rest.sort(key=lambda each: _last_resort(each, reference, limit))
    reason = _reason(grade, good, cheap, adequacies, reference, alone=not others)
    if not nominal.excluded and limit.exceeded_by(nominal):
        reason += f"; {nominal.backend.name} costs more than the model that the client named"
    return Choice((*good, reference, *rest), reference, reason, adequacies, limit)


def _nominal(candidates: Sequence[Candidate], named: str | None) -> Candidate:
    """The policy's reference, whether or not it can serve the request.

    `named`: a backend, a group or a tier. Of a group or tier, the most expensive backend is taken. None means the
    strongest tier. If the backend found is in a model group, and `named` is not this backend's own name, the cheapest
    member of the group that can serve is taken instead.
    """
    meant = [each for each in candidates if each.backend.name == named] or [
        each for each in candidates if named in (each.backend.model_group, each.backend.tier)
    ]
    first = max(meant or candidates, key=_strength)
    group = first.backend.model_group if first.backend.name != named else ""
    members = [each for each in candidates if group and each.backend.model_group == group and not each.excluded]
    return min(members, key=by_cost) if members else first


def _within(candidates: Sequence[Candidate], nominal: Candidate, limit: Ceiling) -> Candidate:
    """The candidate that is used as the reference.

    This is `nominal`, if it can serve and its cost is within `limit`. Otherwise it is the strongest candidate within
    `limit`, preferably one that costs no more than `nominal`. If no candidate is within `limit`, it is the cheapest
    candidate.
    """
    if not nominal.excluded and not limit.exceeded_by(nominal):
        return nominal
    able = [each for each in candidates if not each.excluded]
    within = [each for each in able if not limit.exceeded_by(each)]
    if not within:
        return min(able, key=by_cost)
    return max([each for each in within if not _dearer(each, nominal)] or within, key=_strength)


def cheaper(one: Candidate, other: Candidate) -> bool:
    """Return whether `one` is cheaper than `other`. If `other` has no price, the lower tier counts as cheaper. If only
    `one` has no price, the result is False."""
    if other.cost_pico is None:
        return RANK[one.backend.tier] < RANK[other.backend.tier]
    return one.cost_pico is not None and one.cost_pico < other.cost_pico


CostKey = tuple[bool, int, int, float]
"""The sort key of `by_cost`."""


def by_cost(one: Candidate) -> CostKey:
    """Sort key for candidates: cheapest first. At equal cost, the stronger tier comes first, then the faster member of
    a model group. Backends without a price come last, sorted by tier, lowest first."""
    rank = RANK[one.backend.tier]
    return (True, 0, rank, one.delay_ms) if one.cost_pico is None else (False, one.cost_pico, -rank, one.delay_ms)


def _strength(one: Candidate) -> tuple[int, bool, int]:
    return RANK[one.backend.tier], not one.backend.simulated, -1 if one.worth_pico is None else one.worth_pico


def _dearer(one: Candidate, other: Candidate) -> bool:
    if other.cost_pico is None:
        return RANK[one.backend.tier] > RANK[other.backend.tier]
    return one.cost_pico is None or one.cost_pico > other.cost_pico


def _last_resort(one: Candidate, reference: Candidate, limit: Ceiling) -> tuple[bool, bool, int, CostKey]:
    """Sort key for the last fallbacks. Candidates within the ceiling come before the others. Among the
    candidates within the ceiling, those that cost no more than `reference` come first, and then stronger ones before
    weaker ones. Candidates above the ceiling are sorted by cost, cheapest first."""
    if limit.exceeded_by(one):
        return True, True, 0, by_cost(one)
    return False, _dearer(one, reference), -RANK[one.backend.tier], by_cost(one)


def _reason(
    grade: Grade | None,
    good: Sequence[Candidate],
    cheap: Sequence[Candidate],
    adequacies: dict[str, float],
    reference: Candidate,
    *,
    alone: bool,
) -> str:
    name = reference.backend.name
    if grade is None:
        return f"{name} is the only candidate that can serve" if alone else f"nothing was graded: reference {name}"
    if grade.abstained:
        return f"the prompt is outside the classifier's domain: reference {name}"
    if good:
        chosen = good[0].backend.name
        return f"{chosen} is the cheapest adequate one: {adequacies[chosen]:.2f} at difficulty {grade.difficulty:.2f}"
    if cheap:
        return f"difficulty {grade.difficulty:.2f} is too hard for what is cheaper: reference {name}"
    return f"nothing is known to be cheaper than the reference {name}"
