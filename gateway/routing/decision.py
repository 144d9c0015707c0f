"""Decides, from plain values: the cheapest candidate that is good enough, else the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from gateway.domain.backend import RANK
from gateway.domain.routing.learned import NOTHING, Learned
from gateway.domain.routing.route import Grade
from gateway.routing.candidates import Candidate
from gateway.routing.difficulty.adequacy import Adequacy, Gap, gap


class Choice(NamedTuple):
    """`order[0]` serves, the others are fallbacks. `adequacies`: backend → P(as good as the reference), if known."""

    order: tuple[Candidate, ...]
    reference: Candidate
    reason: str
    adequacies: dict[str, float]


def choose(
    candidates: Sequence[Candidate],
    named: str | None,
    grade: Grade | None,
    quality: float,
    adequacy: Adequacy | None,
    learnt: Mapping[str, Learned] = MappingProxyType({}),
) -> Choice:
    """Decide among `candidates`, of which at least one can serve.

    `named`: the policy's reference. `adequacy`: needed only with a grade. `learnt`: evidence of the team's own answers,
    by backend. The share 1 − `quality` of answers that may be worse is split evenly among the kinds of weaker
    candidates.
    """
    reference = reference_of(candidates, named)
    others = [each for each in candidates if not each.excluded and each is not reference]
    gaps: dict[str, Gap] = {
        each.backend.name: gap(each.backend, reference.backend, each.worth_pico, reference.worth_pico)
        for each in others
    }
    cheap = [each for each in others if cheaper(each, reference)]
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
    rest.sort(key=lambda each: _last_resort(each, reference))
    reason = _reason(grade, good, cheap, adequacies, reference, alone=not others)
    return Choice((*good, reference, *rest), reference, reason, adequacies)


def reference_of(candidates: Sequence[Candidate], named: str | None) -> Candidate:
    """The named backend or the most expensive of the named group or tier, else the most expensive of the strongest
    tier. If that one cannot serve: the strongest that can and is not more expensive. Of a group, the cheapest member
    that can serve takes its place."""
    meant = [each for each in candidates if each.backend.name == named] or [
        each for each in candidates if named in (each.backend.model_group, each.backend.tier)
    ]
    first = max(meant or candidates, key=_strength)
    able = [each for each in candidates if not each.excluded]
    group = first.backend.model_group if first.backend.name != named else ""
    if group and (members := [each for each in able if each.backend.model_group == group]):
        return min(members, key=by_cost)
    if not first.excluded:
        return first
    return max([each for each in able if not _dearer(each, first)] or able, key=_strength)


def cheaper(one: Candidate, other: Candidate) -> bool:
    """Is `one` cheaper? A backend without a price never is; if `other` has none, the backend of the lower tier is."""
    if other.cost_pico is None:
        return RANK[one.backend.tier] < RANK[other.backend.tier]
    return one.cost_pico is not None and one.cost_pico < other.cost_pico


def by_cost(one: Candidate) -> tuple[bool, int, int]:
    """Sort key: cheapest first, at equal cost the stronger first; backends without a price last, the lower tier
    first."""
    rank = RANK[one.backend.tier]
    return (True, 0, rank) if one.cost_pico is None else (False, one.cost_pico, -rank)


def _strength(one: Candidate) -> tuple[int, bool, int]:
    return RANK[one.backend.tier], not one.backend.simulated, -1 if one.worth_pico is None else one.worth_pico


def _dearer(one: Candidate, other: Candidate) -> bool:
    if other.cost_pico is None:
        return RANK[one.backend.tier] > RANK[other.backend.tier]
    return one.cost_pico is None or one.cost_pico > other.cost_pico


def _last_resort(one: Candidate, reference: Candidate) -> tuple[bool, int, tuple[bool, int, int]]:
    """Sort key of further fallbacks: those not more expensive than the reference first, then strong before weak."""
    return _dearer(one, reference), -RANK[one.backend.tier], by_cost(one)


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
