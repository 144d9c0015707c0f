"""How a spent budget is told: which one, for which window, when it begins anew, what to do."""

from __future__ import annotations

from datetime import datetime
from decimal import ROUND_UP, Decimal
from zoneinfo import ZoneInfo

from gateway.domain.policy import Budget
from gateway.domain.units import NANO_PER_USD
from gateway.errors import BudgetExhausted

_SPAN = {"hour": "this hour", "day": "today", "week": "this week", "month": "this month", "total": "in all"}


def spent(team: str, budget: Budget, ends: float, now: float) -> BudgetExhausted:
    served = "" if budget.on_exhausted == "refuse" else " Only cached answers and backends that cost nothing are served."
    return BudgetExhausted(
        f"Team {team} has spent its budget of {budget.limit_usd:f} USD {_span(budget)}.{served} {_anew(budget, ends)} "
        "To go on now, have budget.limit_usd raised in the team's policy.",
        retry_after_s=_wait(ends, now),
    )


def too_little(team: str, budget: Budget, ends: float, now: float, wanted: int, left: int, held: int) -> BudgetExhausted:
    """Amounts in nano-dollars: what the request may cost, what is not spent, what of that others hold."""
    others = f", {usd(held)} USD of it set aside for requests in progress" if held > 0 else ""
    wait = "Try again when they have ended, ask" if held > 0 else "Ask"
    return BudgetExhausted(
        f"The request may cost {usd(wanted)} USD and team {team} has {usd(max(left, 0))} USD left of its budget of "
        f"{budget.limit_usd:f} USD {_span(budget)}{others}. {wait} for fewer output tokens (max_tokens), send less "
        f"context, or have budget.limit_usd raised in the team's policy. {_anew(budget, ends)}",
        retry_after_s=1.0 if left - held < wanted <= left else _wait(ends, now),
    )


def out_of_reach(team: str, budget: Budget) -> BudgetExhausted:
    return BudgetExhausted(
        f"What is left of team {team}'s budget of {budget.limit_usd:f} USD {_span(budget)} cannot be told: the counters "
        "are out of reach and this worker's share is used up. Try again shortly; budget.on_state_loss: allow in the "
        "team's policy lets requests through meanwhile.",
        retry_after_s=1.0,
    )


def usd(nano: int) -> str:
    """At most six decimals, rounded up."""
    amount = (Decimal(nano) / NANO_PER_USD).quantize(Decimal("0.000001"), ROUND_UP).normalize()
    return f"{amount:f}"


def _span(budget: Budget) -> str:
    return _SPAN[budget.window] + (f" ({budget.timezone})" if budget.window != "total" else "")


def _anew(budget: Budget, ends: float) -> str:
    if budget.window == "total":
        return "It does not begin anew."
    return f"It begins anew at {datetime.fromtimestamp(ends, ZoneInfo(budget.timezone)).isoformat(' ', 'minutes')}."


def _wait(ends: float, now: float) -> float | None:
    return max(1.0, ends - now) if ends < float("inf") else None
