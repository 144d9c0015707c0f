"""Finds what would have changed a decision. For this, it decides again with another quality, difficulty, price or
health."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.domain.routing.learned import Learned
from gateway.domain.routing.route import Grade
from gateway.routing.candidates import Candidate
from gateway.routing.ceiling import Ceiling
from gateway.routing.decision import choose
from gateway.routing.difficulty.adequacy import Adequacy

STEPS, HALVINGS = 20, 10
"""`STEPS`: number of values that are tried between the present value and the end of its range. `HALVINGS`: number of
bisections that locate the first change more exactly."""
_CONDITIONS = {
    "quality": (
        "the policy required at most {:.1%} `quality` (chance of an answer as good as the baseline's)",
        "the policy required at least {:.1%} `quality` (chance of an answer as good as the baseline's)",
    ),
    "difficulty": (
        "the prompt were easier (difficulty {:g} or less)",
        "the prompt were harder (difficulty {:g} or more)",
    ),
}
"""Setting → two texts for sentences: the condition for a lower value, and the condition for a higher value."""
_DIGITS = 3
_TEMPORARY = ("health", "busy")
_DEAREST = 100.0
"""Maximum factor by which a price is multiplied."""


class Change(NamedTuple):
    """A changed setting with which routing would choose another backend. `value`: the changed value; of the values that
    were tried, it is the nearest to the present one. `chosen`: name of the other backend."""

    value: float
    chosen: str


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs of one decision by difficulty, without the prompt."""

    candidates: Sequence[Candidate]
    named: str | None
    """Name of the policy's reference."""
    grade: Grade | None
    quality: float
    adequacy: Adequacy | None
    learnt: Mapping[str, Learned]
    ceiling: Ceiling | None = None
    """The cost of the model that the client named."""

    def chosen(
        self,
        *,
        quality: float | None = None,
        difficulty: float | None = None,
        candidates: Sequence[Candidate] | None = None,
    ) -> str:
        """The backend that would be chosen if the given values replaced those of this case."""
        grade = self.grade if difficulty is None else Grade(difficulty)
        quality = self.quality if quality is None else quality
        found = self.candidates if candidates is None else candidates
        return choose(found, self.named, grade, quality, self.adequacy, self.learnt, self.ceiling).order[0].backend.name

    def sentences(self) -> tuple[str, ...]:
        """Sentences that say what would change this decision. Each names one change and the backend that would then be
        chosen."""
        now = self.chosen()
        found = [*changes_of("quality", lambda value: self.chosen(quality=value), self.quality)]
        if self.grade is not None and self.grade.abstained:
            found += self._if_known(now)
        elif self.grade is not None:
            found += changes_of("difficulty", lambda value: self.chosen(difficulty=value), self.grade.difficulty)
        found += self._prices(now)
        found += self._recoveries(now)
        return tuple(found)

    def _if_known(self, now: str) -> list[str]:
        """The sentence about the backend that would be chosen if the prompt had a grade."""
        easiest = self.chosen(difficulty=0.0)
        if easiest == now:
            return []
        change = boundary(lambda value: self.chosen(difficulty=value), 0.0, 1.0)
        limit = "" if change is None else f" and its difficulty below {change.value:.2f}"
        return [_sentence(easiest, f"the prompt were in the grader's domain{limit}")]

    def _prices(self, now: str) -> list[str]:
        """The sentence about the price at which another backend would be chosen."""
        if self.chosen_of(now).cost_pico is None:
            return []
        change = boundary(lambda factor: self.chosen(candidates=self._dearer(now, factor)), 1.0, _DEAREST)
        if change is None:
            return []
        return [_sentence(change.chosen, f"{now} cost {change.value:.2f} times as much")]

    def _dearer(self, name: str, factor: float) -> list[Candidate]:
        return [
            each._replace(
                cost_pico=round(each.cost_pico * factor),
                list_pico=each.worth_pico,
                ledger_pico=None if each.ledger_pico is None else round(each.ledger_pico * factor),
            )
            if each.backend.name == name and each.cost_pico is not None
            else each
            for each in self.candidates
        ]

    def _recoveries(self, now: str) -> list[str]:
        found = []
        for unavailable in self.candidates:
            if unavailable.cause in _TEMPORARY:
                recovered = [
                    each._replace(excluded="", cause="") if each is unavailable else each for each in self.candidates
                ]
                condition = f"{unavailable.backend.name} could be called ({unavailable.excluded})"
                if self.grade is None:
                    found.append(f"there would be a choice if {condition}")
                elif (chosen := self.chosen(candidates=recovered)) != now:
                    found.append(_sentence(chosen, condition))
        return found

    def chosen_of(self, name: str) -> Candidate:
        return next(each for each in self.candidates if each.backend.name == name)


def changes_of(what: str, chosen: Callable[[float], str], now: float) -> list[str]:
    """At most two sentences about the setting `what`: the nearest lower and the nearest higher value that change the
    choice. `chosen(value)`: returns the backend that is chosen at a value. `now`: the present value. Values are between
    0 and 1."""
    lower, higher = boundary(chosen, now, 0.0), boundary(chosen, now, 1.0)
    at_most, at_least = _CONDITIONS[what]
    return [
        *([] if lower is None else [_sentence(lower.chosen, at_most.format(_down(lower.value)))]),
        *([] if higher is None else [_sentence(higher.chosen, at_least.format(_up(higher.value)))]),
    ]


def _sentence(chosen: str, condition: str) -> str:
    return f"{chosen} would be chosen if {condition}"


def boundary(chosen: Callable[[float], str], now: float, end: float) -> Change | None:
    """The first value from `now` towards `end` at which the result of `chosen` changes; None if there is none. Only
    `STEPS` values are tried."""
    usual, before = chosen(now), now
    for step in range(1, STEPS + 1):
        after = now + (end - now) * step / STEPS
        if chosen(after) == usual:
            before = after
            continue
        for _ in range(HALVINGS):
            middle = (before + after) / 2
            if chosen(middle) == usual:
                before = middle
            else:
                after = middle
        return Change(after, chosen(after))
    return None


def _down(value: float) -> float:
    """Round `value` down. A rounded-up value would make the sentence "at most this value" wrong."""
    scale: float = 10.0**_DIGITS
    return int(value * scale) / scale


def _up(value: float) -> float:
    scale: float = 10.0**_DIGITS
    return -int(-value * scale // 1) / scale
