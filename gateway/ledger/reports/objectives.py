"""Compares the judged quality of answers to clients with a team's objective (`slo` in its policy).

The error budget is the share of answers that may be worse than the reference's: 1 − objective. The burn rate is the
share of bad answers divided by the error budget. At a burn rate of 1, the error budget lasts exactly for the window
(Beyer et al. 2018, "The Site Reliability Workbook", chapter 5). Only few answers are judged. So the team counts as
burning or missing its objective only if the lower bound of the share of bad answers shows this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection

from gateway.domain.policy import Policy
from gateway.domain.routing.standing import wilson
from gateway.domain.slo import SloPolicy
from gateway.ledger.store import served_quality
from gateway.ledger.store.served_quality import NO_REQUESTS, Requests, Verdict

State = Literal["unknown", "met", "burning", "missed"]
ALL = "all"
"""Name of the row that covers all traffic classes."""
RECENT = 0.1
"""The burn rate is measured over this share of the window."""
FAST = 2.0
"""Burn rate above which an objective counts as burning. At rate 2 the budget is spent after half of the window."""
LEAST = 10.0
"""Minimum weight of judged answers. With less, the state is unknown."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of one team for one traffic class, with the measured quality."""

    team: str
    traffic_class: str
    objective: float
    window_s: float
    judged: float
    """Judged answers in the window, by weight: a comparison weighs 1, a rating less."""
    bad: float
    """The part of `judged` that was worse than the reference's answers."""
    recent_judged: float
    recent_bad: float
    requests: Requests = NO_REQUESTS

    @property
    def quality(self) -> float | None:
        """The mean quality of the judged answers; None if no answer was judged."""
        return 1 - self.bad / self.judged if self.judged else None

    @property
    def budget_left(self) -> float | None:
        """The unused share of the error budget; below 0 if more than the budget was used. None if no answer was
        judged."""
        return 1 - self.bad / (self.judged * (1 - self.objective)) if self.judged else None

    @property
    def burn_rate(self) -> float | None:
        """The burn rate: the recent share of bad answers, divided by the error budget. None if no answer was judged
        recently."""
        return self.recent_bad / (self.recent_judged * (1 - self.objective)) if self.recent_judged else None

    @property
    def state(self) -> State:
        """The state of the objective. `burning` and `missed` are reported only with a certainty of 95 % (one-sided)."""
        allowed = 1 - self.objective
        if _surely_above(self.bad, self.judged, allowed):
            return "missed"
        if _surely_above(self.recent_bad, self.recent_judged, min(0.99, FAST * allowed)):
            return "burning"
        return "met" if self.judged >= LEAST else "unknown"

    def as_object(self) -> dict[str, Any]:
        """The objective as JSON values."""
        return {
            "team": self.team,
            "class": self.traffic_class,
            "objective": self.objective,
            "window_s": self.window_s,
            "state": self.state,
            "judged": round(self.judged, 2),
            "quality": _rounded(self.quality),
            "error_budget_left": _rounded(self.budget_left),
            "burn_rate": _rounded(self.burn_rate),
            "requests": self.requests.served,
            "escalated": self.requests.escalated,
        }


def read(connection: Connection, policy: Policy, now: float) -> list[Objective]:
    """The state of a team's objective: first for all traffic classes together, then for each class with judged answers.
    Empty if the policy has no objective."""
    slo = policy.slo
    if slo.objective is None:
        return []
    since = now - slo.window
    by_class = served_quality.verdicts(connection, policy.team, since)
    counts = served_quality.requests(connection, policy.team, since)
    every = [verdict for verdicts in by_class.values() for verdict in verdicts]
    total = Requests(*(sum(getattr(one, name) for one in counts.values()) for name in ("served", "escalated")))
    rows = [(ALL, every, total)]
    rows += [(name, by_class[name], counts.get(name, NO_REQUESTS)) for name in sorted(by_class) if name]
    return [_objective(policy.team, name, slo, verdicts, count, now) for name, verdicts, count in rows]


def of_teams(connection: Connection, policies: Mapping[str, Policy], now: float) -> list[Objective]:
    """The objectives of all teams, sorted by team."""
    return [one for _, policy in sorted(policies.items()) for one in read(connection, policy, now)]


def _objective(
    team: str, name: str, slo: SloPolicy, verdicts: Sequence[Verdict], count: Requests, now: float
) -> Objective:
    assert slo.objective is not None
    recent = [one for one in verdicts if one.at >= now - RECENT * slo.window]
    return Objective(team, name, slo.objective, slo.window, *_sums(verdicts), *_sums(recent), count)


def _sums(verdicts: Sequence[Verdict]) -> tuple[float, float]:
    return sum(one.weight for one in verdicts), sum(one.weight * one.bad for one in verdicts)


def _surely_above(bad: float, judged: float, share: float) -> bool:
    return judged >= LEAST and wilson(bad / judged, judged)[0] > share


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
