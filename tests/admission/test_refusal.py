from __future__ import annotations

import pytest

from gateway.admission import refusal
from gateway.domain.policy import Budget

ENDS = 1_767_222_000.0  # 2026-01-01 00:00 in Madrid
MONTH = Budget(limit_usd="500", window="month", timezone="Europe/Madrid")


def test_a_spent_budget_is_named_with_its_window_reset_and_remedy() -> None:
    error = refusal.spent("search", MONTH, ENDS, ENDS - 90)
    assert "budget of 500 USD this month (Europe/Madrid)" in error.message
    assert "begins anew at 2025-12-31T23:00:00Z" in error.message
    assert "budget.limit_usd" in error.message
    assert (error.status, error.code, error.retry_after_s) == (429, "insufficient_quota", 90)


def test_a_downgrade_says_what_is_still_served() -> None:
    error = refusal.spent("search", MONTH.model_copy(update={"on_exhausted": "downgrade"}), ENDS, ENDS - 90)
    assert "cost nothing" in error.message


def test_a_total_budget_never_begins_anew() -> None:
    error = refusal.spent("search", Budget(limit_usd="5", window="total"), float("inf"), 0.0)
    assert "5 USD in all." in error.message
    assert "does not begin anew" in error.message
    assert error.retry_after_s is None


def test_money_that_others_hold_comes_back_soon() -> None:
    need = refusal.Need(wanted=20_000_000, left=30_000_000, held=25_000_000)
    error = refusal.too_little("search", MONTH, ENDS, 0.0, need)
    assert "may cost 0.02 USD" in error.message
    assert "0.03 USD left" in error.message
    assert "0.025 USD of it set aside" in error.message
    assert error.retry_after_s == 1.0


@pytest.mark.parametrize(("nano", "written"), [(1, "0.000001"), (1_500_000_000, "1.5"), (3 * 10**12, "3000"), (0, "0")])
def test_amounts_are_plain_and_rounded_up(nano: int, written: str) -> None:
    assert refusal.usd(nano) == written
