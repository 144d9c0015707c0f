from __future__ import annotations

import pytest

from gateway.admission import messages
from gateway.domain.money.budget import Budget

ENDS = 1_767_222_000.0  # 2026-01-01 00:00 in Madrid
MONTH = Budget(limit_usd="500", window="month", timezone="Europe/Madrid")


def named(budget: Budget = MONTH, ends: float = ENDS) -> messages.NamedBudget:
    return messages.NamedBudget(budget, "team search", "budget.* in the team's policy", ends)


def test_a_spent_budget_is_named_with_its_window_reset_and_remedy() -> None:
    error = messages.spent(named(), ENDS - 90)
    assert "budget of 500 USD this month (Europe/Madrid)" in error.message
    assert "begins anew at 2025-12-31T23:00:00Z" in error.message
    assert "budget.limit_usd" in error.message
    assert (error.status, error.code, error.retry_after_s) == (429, "insufficient_quota", 90)


def test_a_downgrade_says_what_is_still_served() -> None:
    error = messages.spent(named(MONTH.model_copy(update={"on_exhausted": "downgrade"})), ENDS - 90)
    assert "cost nothing" in error.message


def test_a_total_budget_never_begins_anew() -> None:
    error = messages.spent(named(Budget(limit_usd="5", window="total"), float("inf")), 0.0)
    assert "5 USD in all." in error.message
    assert "does not begin anew" in error.message
    assert error.retry_after_s is None


def test_money_that_others_hold_comes_back_soon() -> None:
    need = messages.Shortfall(wanted=20_000_000, left=30_000_000, held=25_000_000)
    error = messages.too_little(named(), 0.0, need)
    assert "may cost 0.02 USD" in error.message
    assert "0.03 USD left" in error.message
    assert "0.025 USD of it set aside" in error.message
    assert error.retry_after_s == 1.0


def test_tokens_are_told_as_tokens_and_a_name_by_its_name() -> None:
    budget = Budget(name="trial", limit_tokens=20_000, window="day", on_exhausted="truncate")
    error = messages.too_little(named(budget), 0.0, messages.Shortfall(wanted=300, left=200, held=0))
    assert "may take 300 tokens and team search has 200 tokens left" in error.message
    assert "20000 tokens today (UTC), called trial," in error.message
    assert "budget.limit_tokens" in error.message
    assert error.truncates


@pytest.mark.parametrize(("nano", "written"), [(1, "0.000001"), (1_500_000_000, "1.5"), (3 * 10**12, "3000"), (0, "0")])
def test_amounts_are_plain_and_rounded_up(nano: int, written: str) -> None:
    assert messages.usd(nano) == written
