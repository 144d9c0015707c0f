"""How a spent budget is told: which one, for which window, when it begins anew, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from gateway.domain.policy import Budget
from gateway.domain.units import NANO_PER_USD
from gateway.domain.windows import iso
from gateway.errors import BudgetExhausted

_SPAN = {"hour": "this hour", "day": "today", "week": "this week", "month": "this month", "total": "in all"}


@dataclass(frozen=True, slots=True)
class Need:
    """Nano-dollars."""

    wanted: int
    """What the request may cost."""
    left: int
    """Not spent."""
    held: int
    """Of that, set aside for other requests."""


def spent(team: str, budget: Budget, ends: float, now: float) -> BudgetExhausted:
    served = " Only cached answers and backends that cost nothing are served."
    return BudgetExhausted(
        f"Team {team} has spent its budget of {_limit(budget)}.{'' if budget.on_exhausted == 'refuse' else served} "
        f"{_anew(budget, ends)} To go on now, have budget.limit_usd raised in the team's policy.",
        retry_after_s=_wait(ends, now),
    )


def too_little(team: str, budget: Budget, ends: float, now: float, need: Need) -> BudgetExhausted:
    others = f", {usd(need.held)} USD of it set aside for requests in progress" if need.held else ""
    begin = "Try again when they have ended, ask" if need.held else "Ask"
    return BudgetExhausted(
        f"The request may cost {usd(need.wanted)} USD and team {team} has {usd(need.left)} USD left of its budget of "
        f"{_limit(budget)}{others}. {begin} for fewer output tokens (max_tokens), send less context, or have "
        f"budget.limit_usd raised in the team's policy. {_anew(budget, ends)}",
        retry_after_s=1.0 if need.wanted <= need.left else _wait(ends, now),
    )


def out_of_reach(team: str, budget: Budget) -> BudgetExhausted:
    return BudgetExhausted(
        f"What is left of team {team}'s budget of {_limit(budget)} cannot be told: the counters are out of reach and "
        "this worker's share is used up. Try again shortly; budget.on_state_loss: allow in the team's policy lets "
        "requests through meanwhile.",
        retry_after_s=1.0,
    )


def usd(nano: int) -> str:
    """At most six decimals, rounded up."""
    amount = (Decimal(nano) / NANO_PER_USD).quantize(Decimal("0.000001"), ROUND_UP).normalize()
    return f"{amount:f}"


def _limit(budget: Budget) -> str:
    zone = f" ({budget.timezone})" if budget.window != "total" else ""
    return f"{budget.limit_usd:f} USD {_SPAN[budget.window]}{zone}"


def _anew(budget: Budget, ends: float) -> str:
    if budget.window == "total":
        return "It does not begin anew."
    return f"It begins anew at {iso(ends)}."


def _wait(ends: float, now: float) -> float | None:
    return max(1.0, ends - now) if ends < float("inf") else None
