"""Error messages about exhausted budgets: name, window, reset time and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from gateway.domain.backend import Backend
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import iso
from gateway.domain.units import NANO_PER_USD
from gateway.errors import BudgetExhausted

_SPAN = {"hour": "this hour", "day": "today", "week": "this week", "month": "this month", "total": "in all"}


@dataclass(frozen=True, slots=True)
class NamedBudget:
    """A budget, as messages to clients describe it."""

    budget: Budget
    owner: str
    """The owner, such as `team search`."""
    where: str
    """The place where the limit is set, such as `budget` in the team's policy."""
    ends: float
    """End of the window in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The amounts in a message about a budget that is too small, in nano-dollars or tokens."""

    wanted: int
    """Maximum cost of the request."""
    left: int
    """Amount of the budget that is not spent."""
    held: int
    """The part of `left` that is held for other requests."""


def spent(named: NamedBudget, now: float) -> BudgetExhausted:
    rule = named.budget.on_exhausted
    served = "" if rule == "refuse" else " Only cached answers and backends that cost nothing are served."
    return BudgetExhausted(
        f"{_first(named.owner)} has spent its budget of {_limit(named.budget)}.{served} {_anew(named)} To go on now, "
        f"have {_key(named)} raised.",
        retry_after_s=_wait(named.ends, now),
        truncates=rule == "truncate",
    )


def too_little(named: NamedBudget, now: float, need: Shortfall) -> BudgetExhausted:
    budget = named.budget
    costs = "take" if budget.limit_usd is None else "cost"
    others = f", {_amount(need.held, budget)} of it set aside for requests in progress" if need.held else ""
    begin = "Try again when they have ended, ask" if need.held else "Ask"
    left = _amount(need.left, budget)
    return BudgetExhausted(
        f"The request may {costs} {_amount(need.wanted, budget)} and {named.owner} has {left} left of its budget of "
        f"{_limit(budget)}{others}. {begin} for fewer output tokens (max_tokens), send less context, or have "
        f"{_key(named)} raised. {_anew(named)}",
        retry_after_s=1.0 if need.wanted <= need.left else _wait(named.ends, now),
        truncates=budget.on_exhausted == "truncate",
    )


def out_of_reach(named: NamedBudget) -> BudgetExhausted:
    return BudgetExhausted(
        f"It is unknown what {named.owner} has left of its budget of {_limit(named.budget)}: the counters are out of "
        "reach and this worker's share is used up. Try again shortly; on_state_loss: allow beside "
        f"{_key(named)} lets requests through meanwhile.",
        retry_after_s=1.0,
        truncates=named.budget.on_exhausted == "truncate",
    )


def unpriced(named: NamedBudget, backend: Backend, what: str) -> BudgetExhausted:
    """The error for a call whose price on `backend` is unknown. `what`: the unit without a price; empty if the
    model has no price.
    """
    thing = f"{what} on {backend.name}" if what else f"{backend.model} on {backend.name}"
    return BudgetExhausted(
        f"Nobody knows what {thing} costs, and {named.owner} has a hard budget of {_limit(named.budget)}, which could "
        f"not be kept. Give backends.price in gateway.yaml, or say `location: local` there if the machine is your own, "
        f"or allow it with on_unpriced: allow beside {_key(named)}.",
        truncates=named.budget.on_exhausted == "truncate",
    )


def usd(nano: int) -> str:
    """US dollars with at most six decimals, rounded up."""
    amount = (Decimal(nano) / NANO_PER_USD).quantize(Decimal("0.000001"), ROUND_UP).normalize()
    return f"{amount:f}"


def _first(owner: str) -> str:
    return owner[:1].upper() + owner[1:]


def _amount(units: int, budget: Budget) -> str:
    return f"{units} tokens" if budget.limit_usd is None else f"{usd(units)} USD"


def _key(named: NamedBudget) -> str:
    return named.where.replace("*", "limit_tokens" if named.budget.limit_usd is None else "limit_usd")


def _limit(budget: Budget) -> str:
    limit = f"{budget.limit_tokens} tokens" if budget.limit_usd is None else f"{budget.limit_usd:f} USD"
    zone = f" ({budget.timezone})" if budget.window != "total" else ""
    return f"{limit} {_SPAN[budget.window]}{zone}{f', called {budget.name},' if budget.name else ''}"


def _anew(named: NamedBudget) -> str:
    if named.budget.window == "total":
        return "It does not begin anew."
    return f"It begins anew at {iso(named.ends)}."


def _wait(ends: float, now: float) -> float | None:
    return max(1.0, ends - now) if ends < float("inf") else None
