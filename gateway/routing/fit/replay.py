"""Replays recorded outcomes with the same code that decides about real requests. The recorded answer of a model is used
only if the replayed decisions call this model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gateway.domain.routing.strategy import RunningStrategy, StrategyAnswer
from gateway.routing.fit.outcomes import Outcomes
from gateway.routing.strategy.plan import Plan


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of the replay for one prompt."""

    id: str
    called: tuple[str, ...]
    quality: float
    usd: float
    """US dollars of all calls."""
    adequacy: Mapping[str, float]
    """Model → P(quality ≥ 0.5), estimated from the prompt."""


def replay(outcomes: Outcomes, plan: Plan, quality: float, reference: str = "") -> Iterator[Replayed]:
    """Yield the result for each prompt, in the order of `outcomes`. `quality`: the target quality. If the plan has no
    model with an outcome for a prompt, the cheapest model with an outcome answers."""
    for place, prompt in enumerate(outcomes.prompts):
        row = Row(outcomes, place)
        able = {model: model for model in row.columns}
        start = plan.begin(prompt, quality, outcomes.ids[place], able, (), reference)
        if start is None:
            model = min(row.columns, key=row.usd_of)
            yield Replayed(outcomes.ids[place], (model,), row.quality_of(model), row.usd_of(model), {})
            continue
        answers = ask(start.asking, row)
        served = answers[start.asking.serves(answers)].backend
        called = tuple(each.backend for each in answers)
        usd = sum(row.usd_of(model) for model in called)
        yield Replayed(outcomes.ids[place], called, row.quality_of(served), usd, start.adequacy)


class Row:
    """The recorded answers of all models to one prompt."""

    def __init__(self, outcomes: Outcomes, place: int) -> None:
        self._outcomes, self._place = outcomes, place
        self.columns = {
            model: column
            for column, model in enumerate(outcomes.models)
            if not np.isnan(outcomes.quality[place, column])
        }

    def answer(self, model: str) -> StrategyAnswer:
        return StrategyAnswer(model, self._outcomes.votes[self._place][self.columns[model]])

    def quality_of(self, model: str) -> float:
        return float(self._outcomes.quality[self._place, self.columns[model]])

    def usd_of(self, model: str) -> float:
        return float(self._outcomes.usd[self._place, self.columns[model]])


def ask(asking: RunningStrategy, row: Row) -> list[StrategyAnswer]:
    """Run a strategy to its end on recorded answers. Returns the answers that the strategy used."""
    answers: list[StrategyAnswer] = []
    while wanted := asking.next(answers):
        answers += [row.answer(model) for model in wanted]
    return answers
