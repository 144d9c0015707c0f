"""The statistics that decide whether a cheaper backend may serve one traffic class of a team. If it may, the class is
open; otherwise it is closed. Works without I/O.

Score: how good the backend's answer is compared with the reference's answer, 0..1. Boundary: the quality that the
policy requires, minus TOLERANCE.

Opening: a betting test of the statement "the mean score is at most the boundary". The test has a number, the wealth.
Each score multiplies the wealth by 1 + bet (score - boundary). While the statement is true, the wealth does not grow
on average. So the wealth reaches x with a probability of at most 1/x, whenever and however often it is read (Ville
1939; Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"). The wealth is averaged
over several bets. After each failed attempt the limits double, so the probabilities of all attempts together stay
bounded.

Closing: the same bet in the other direction, with a wealth that never falls below 1. The mean number of comparisons
until a false alarm is at least DROP (Shin, Ramdas and Rinaldo 2024, "E-detectors"). A second detector uses signs of
weakness that are found without a further call. It tests the statement "at most the share TOLERANCE of the served
answers look weak and are then found to be worse by a comparison".
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Self

from gateway.domain.routing.standing import TOLERANCE

SHARES = (0.0, 0.05, 0.25, 1.0)
"""Share of sessions that the backend serves, by stage."""
OPENING = (10.0, 30.0, 100.0)
"""Wealth at which a class reaches stage 1, 2 and 3 in its first attempt."""
KEPT, MOST_KEPT = 0.05, 10.0
"""At stage 3 the opening test goes on. Its wealth counts up to `MOST_KEPT` times the wealth that stage 3 required.
The class is closed when the wealth falls below `KEPT` times the required wealth: it is then no longer certain
that the class is good enough."""
REFUSED = 1000.0
"""Wealth, against "the mean score is at least the boundary", at which an attempt ends without success."""
MOST_COMPARED = 2_000
"""Number of comparisons after which an attempt ends without success."""
LEAST_SERVED = 10
"""Minimum number of comparisons of served answers at one stage before the next stage."""
LEAST_DECIDED = 0.5
"""Minimum share of comparisons with a verdict. A class with fewer verdicts is not opened."""
DROP = 400.0
"""Wealth of the closing test at which a class is closed."""
WEAK = 10_000.0
"""Wealth of the test of weak answers at which a class is closed. This test sees every served answer."""
WATCHED, SUSPECTED, REFUSED_SHARE = 0.04, 0.5, 0.05
"""Shares of answers that are compared. `WATCHED`: at stage 3. `SUSPECTED`: at stage 3 while the wealth of a closing
test is above SUSPICIOUS. `REFUSED_SHARE`: after an attempt without success."""
SUSPICIOUS = 2.0
_OPENING_BETS = (0.4, 0.7, 1.0)
_DROP_BETS = (0.5, 1.0, 2.0, 4.0, 8.0)
_WEAK_BETS = (2.0, 8.0, 20.0)
_SAFE = 0.95
_LEAST_BOUNDARY = 0.01
_MOST_DOUBLINGS = 10

Change = Literal["", "opened", "closed", "refused"]


class TrialKey(NamedTuple):
    """The backend, the traffic class and the team of a trial. `target`: the quality that the policy requires."""

    team: str
    traffic_class: str
    backend: str
    reference: str
    target: float


class Comparison(NamedTuple):
    """One comparison of the backend's answer with the reference's answer."""

    score: float | None
    """0..1; None if the judge reached no verdict."""
    served: bool
    """Whether the backend's answer was served."""
    weak: bool = False
    """Whether the backend's answer looked weak."""
    drawn: bool = True
    """Whether the answer was selected at random. False: it was compared only because it looked weak."""
    sound: int = 0
    """Number of answers that did not look weak and were served since the previous comparison."""


@dataclass(slots=True)
class ClassTrial:
    """The state of the trial of one backend in one traffic class. It changes with each comparison, and can be stored as
    JSON."""

    target: float
    """The quality that the policy requires."""
    stage: int = 0
    attempt: int = 0
    """Number of attempts that ended: refused or closed."""
    waiting: bool = False
    """Whether the latest attempt was refused. Then few answers are compared."""
    compared: int = 0
    """Comparisons of this attempt with a verdict."""
    undecided: int = 0
    """Comparisons of this attempt without a verdict."""
    total: float = 0.0
    """Sum of the scores of this attempt."""
    served: int = 0
    """Comparisons of served answers at this stage."""
    up: list[float] = field(default_factory=lambda: [1.0] * len(_OPENING_BETS))
    down: list[float] = field(default_factory=lambda: [1.0] * len(_DROP_BETS))
    weak: list[float] = field(default_factory=lambda: [1.0] * len(_WEAK_BETS))
    lately: int = 0
    """Comparisons since the wealth of the closing test was last at its minimum."""
    lost: float = 0.0
    """Sum of 1 - score over the comparisons that `lately` counts."""
    version: int = 0
    """Number of comparisons that were processed since the trial began."""
    why: str = "not compared yet"
    """The reason for the latest change."""

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Self:
        return cls(**stored)

    def values(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def boundary(self) -> float:
        """The limit for the backend's mean score. Above it, the class may open for the backend; below it, the class
        closes."""
        return max(_LEAST_BOUNDARY, self.target - TOLERANCE)

    @property
    def share(self) -> float:
        """The share of sessions that the backend serves."""
        return SHARES[self.stage]

    @property
    def mean(self) -> float:
        """The mean score of the comparisons in the present attempt to open the class; 0 without comparisons."""
        return self.total / self.compared if self.compared else 0.0

    def compare_share(self, learning: float, *, served: bool) -> float:
        """The share of answers to compare. `learning`: the share in the policy. `served`: whether the backend served
        the answer."""
        if self.stage == len(SHARES) - 1:
            return SUSPECTED if max(_mean(self.down), _mean(self.weak)) > SUSPICIOUS else WATCHED
        if served:
            return 1.0
        return min(learning, REFUSED_SHARE) if self.waiting else learning

    def see(self, seen: Comparison) -> Change:
        """Add a comparison. Returns the change of the trial's stage."""
        self.version += 1
        if self.stage and seen.served:
            self._signals(seen)
            if _mean(self.weak) >= WEAK:
                return self._end("closed", "served answers look weak and were confirmed to be worse")
        if not seen.drawn:
            return ""
        if seen.score is None:
            self.undecided += 1
            return ""
        self._bet(seen.score, seen.served)
        if _mean(self.down) >= (DROP if self.stage else REFUSED):
            if self.stage:
                return self._end("closed", f"{self.lost:g} of the last {self.lately} compared answers were worse")
            figures = f"{self.mean:.2f} as good over {self.compared} comparisons"
            return self._end("refused", f"{figures}, {self.target:.2f} is required")
        if self.stage == len(OPENING) and _mean(self.up) < KEPT * self._required(self.stage):
            return self._end(
                "closed", f"{self.mean:.2f} as good over {self.compared} comparisons is not certain enough"
            )
        return self._advance()

    def _bet(self, score: float, served: bool) -> None:
        self.compared += 1
        self.total += score
        self.served += served
        boundary = self.boundary
        most = MOST_KEPT * self._required(self.stage) if self.stage == len(OPENING) else math.inf
        for number, bet in enumerate(_OPENING_BETS):
            kept = self.up[number] * (1 + min(bet, _SAFE / boundary) * (score - boundary))
            self.up[number] = min(most, kept)
        for number, bet in enumerate(_DROP_BETS):
            kept = self.down[number] * (1 + min(bet, _SAFE / (1 - boundary)) * (boundary - score))
            self.down[number] = max(1.0, kept) if self.stage else kept
        calm = max(self.down) <= 1.0
        self.lately, self.lost = (0, 0.0) if calm else (self.lately + 1, self.lost + 1 - score)

    def _signals(self, seen: Comparison) -> None:
        loss = 1 - seen.score if seen.weak and seen.score is not None else 0.0
        for number, bet in enumerate(_WEAK_BETS):
            kept = max(1.0, self.weak[number] * (1 - bet * TOLERANCE) ** seen.sound)
            self.weak[number] = max(1.0, kept * (1 + bet * (loss - TOLERANCE)))

    def _required(self, stage: int) -> float:
        """The value that the wealth of the opening test must reach for `stage`."""
        return math.ldexp(OPENING[stage - 1], min(self.attempt, _MOST_DOUBLINGS))

    def _advance(self) -> Change:
        if self.stage == len(OPENING):
            return ""
        limit = self._required(self.stage + 1)
        enough = not self.stage or self.served >= LEAST_SERVED
        decided = self.compared >= LEAST_DECIDED * (self.compared + self.undecided)
        if _mean(self.up) >= limit and enough and decided:
            if not self.stage:
                self.down = [1.0] * len(_DROP_BETS)
            self.stage, self.served, self.waiting = self.stage + 1, 0, False
            self.why = f"{self.mean:.2f} as good over {self.compared} comparisons"
            return "opened"
        if self.compared >= MOST_COMPARED:
            return self._end("refused", f"nothing is certain after {self.compared} comparisons")
        return ""

    def _end(self, change: Change, why: str) -> Change:
        fresh = ClassTrial(
            self.target,
            attempt=self.attempt + 1,
            waiting=change == "refused",
            version=self.version,
            why=f"{change}: {why}",
        )
        for name, value in asdict(fresh).items():
            setattr(self, name, value)
        return change


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
