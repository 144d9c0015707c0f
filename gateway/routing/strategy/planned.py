"""Applies a plan to a request: chooses a strategy for the available backends and for the quality in the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gateway.domain.request import CompletionRequest
from gateway.domain.routing.learned import NOTHING, Learned
from gateway.domain.routing.route import Grade
from gateway.domain.routing.strategy import RunningStrategy
from gateway.domain.units import PICO_PER_USD
from gateway.routing.candidates import Candidate
from gateway.routing.decision import Choice, by_cost
from gateway.routing.strategy.tariff import Tariff, repriced_usd, steps

if TYPE_CHECKING:  # it imports NumPy
    from gateway.routing.strategy.plan import Plan
    from gateway.routing.strategy.strategy import Strategy


class Planned(NamedTuple):
    """The result of a plan for one request. `choice`: the decision, with the strategy's backends first. `asking`: the
    running strategy; None if a single backend is called. `strategy`: description of the strategy."""

    choice: Choice
    asking: RunningStrategy | None
    strategy: str
    calls: float = 1.0
    """Expected cost of all calls, divided by the cost of one call of the first backend."""
    adequacy: float = 1.0
    """Expected quality of the strategy's answers, divided by the quality of the reference."""


def planned(
    plan: Plan,
    choice: Choice,
    candidates: Sequence[Candidate],
    request: CompletionRequest,
    quality: float,
    subject: str,
    learnt: Mapping[str, Learned] = MappingProxyType({}),
    tokens: tuple[int, int] = (0, 0),
) -> Planned | None:
    """Choose a strategy of the plan. None if the plan does not apply or costs more than the ceiling; then use `choice`.
    `quality`: share of the reference's mean quality that must be reached. `subject`: the conversation or request;
    the same subject always gets the same strategy.

    `learnt`: backend → evidence. Backends that answered worse than expected are not called, except the reference.
    `tokens`: (input, output) for which the candidates' costs were computed; (0, 0): use the prices in the plan.
    """
    trusted = choice.reference.backend.name
    dearer = {each.backend.name for each in candidates if choice.ceiling.exceeded_by(each)}
    able = {
        model: name
        for model, name in backends_for(plan, candidates).items()
        if name == trusted or not (learnt.get(name, NOTHING).margin or name in dearer)
    }
    reference = next((model for model, name in able.items() if name == trusted), None)
    if reference is None:  # a cheaper backend may serve the same model as the reference
        reference = next((model for model in able if model == choice.reference.backend.model), None)
    if reference is None or len(able) < 2 or not is_plain_question(request):
        return None
    usable = {each.backend.name: each for each in candidates if not each.excluded}
    tariff = _tariff(plan, {model: usable[name] for model, name in able.items()}, *tokens)
    level = plan.quality_of(reference)
    start = plan.begin(request.last_user, quality * level, subject, able, tariff, reference)
    if start is None:
        return None
    first = start.asking.next(())
    asked = [*first, *sorted(able[model] for model in start.strategy.models if able[model] not in first)]
    first_backends = tuple(usable[name] for name in asked)
    order = (*first_backends, *(each for each in choice.order if each.backend.name not in asked))
    title = f"{start.strategy.kind}: {start.strategy.description}"
    reason = f"{title}; expected quality {start.expected:.3f}, wanted {start.wanted:.3f}"
    if tariff:
        reason += f"; prices differ from the fit's: {', '.join(model for model, _ in tariff)}"
    calls = _calls(plan, start.strategy, first, able, dict(tariff))
    if choice.ceiling.exceeded_by(usable[first[0]], calls if start.strategy.several else 1.0):
        return None
    adequacies = {able[model]: chance for model, chance in start.adequacy.items() if model in able}
    return Planned(
        choice._replace(order=order, reason=reason, adequacies=adequacies),
        start.asking if start.strategy.several else None,
        title,
        calls,
        min(1.0, start.strategy.quality / (level or 1.0)),
    )


def first_planned(
    plans: Sequence[Plan],
    choice: Choice,
    candidates: Sequence[Candidate],
    request: CompletionRequest,
    quality: float,
    subject: str,
    learnt: Mapping[str, Learned] = MappingProxyType({}),
    tokens: tuple[int, int] = (0, 0),
) -> Planned | None:
    """Apply the first of `plans` that applies to the request; None if none applies. The arguments are those of
    `planned`."""
    for plan in plans:
        found = planned(plan, choice, candidates, request, quality, subject, learnt, tokens)
        if found is not None:
            return found
    return None


def _tariff(plan: Plan, able: Mapping[str, Candidate], input_tokens: int, output_tokens: int) -> Tariff:
    """The models whose present price differs from their price in the plan, with the difference. A model without a
    present price counts as unchanged."""
    if not input_tokens + output_tokens:
        return ()
    found = []
    for model, candidate in able.items():
        price = plan.prices.get(model)
        if price is not None and candidate.cost_pico is not None:
            output = min(output_tokens, candidate.backend.max_output_tokens or output_tokens)
            usd = (price[0] * input_tokens + price[1] * output) / 1e6
            change = steps(candidate.cost_pico / PICO_PER_USD, usd)
            if change is not None:
                found.append((model, change))
    return tuple(found)


def _calls(
    plan: Plan, strategy: Strategy, first: Sequence[str], able: Mapping[str, str], tariff: Mapping[str, int]
) -> float:
    """The expected cost of all calls of `strategy`, as a multiple of the cost of one call of its first model."""
    for single in plan.singles:
        if any(able.get(model) in first for model in single.first):
            usd = repriced_usd(single, tariff)
            return strategy.usd / usd if usd else 1.0
    return 1.0


def is_plain_question(request: CompletionRequest) -> bool:
    """Return whether the request is one question for one answer, without tools, images or files."""
    plain = not any(turn.calls or turn.results or turn.images or turn.files for turn in request.turns)
    return plain and request.parallel == 1 and not request.needs & {"tools", "vision"} and bool(request.last_user)


def backends_for(plan: Plan, candidates: Sequence[Candidate]) -> dict[str, str]:
    """Choose a backend for each model of the plan: model → backend. The backend with the model's name is chosen. If
    there is none, the cheapest backend with that model is chosen."""
    able = sorted((each for each in candidates if not each.excluded), key=by_cost)
    found: dict[str, str] = {}
    for model in plan.models:
        named = [each for each in able if each.backend.name == model]
        has = named or [each for each in able if each.backend.model == model]
        if has:
            found[model] = has[0].backend.name
    return found


def in_domain(grade: Grade | None) -> bool:
    """Return whether a plan may decide about a request with this grade. False if the grader abstained because the
    prompt differs too much from the training prompts."""
    return grade is not None and not grade.abstained
