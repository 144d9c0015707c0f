"""Reports say of every budget what is spent, what is left, and what the forecast says."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gateway.alerts.detect.standing import MOST_SUBJECTS, standings
from gateway.domain.money.budget import Budget
from gateway.domain.policy import Policy
from gateway.state.sql.database import Database
from tests.ledger.booked import DAY, JANUARY, USD, book, row

NOW = JANUARY + 20 * DAY


def standing(database: Database, *budgets: Budget, **organisations: tuple[Budget, ...]) -> list[dict[str, Any]]:
    policy = Policy(team="search", organisation="acme", budget=budgets)
    with database.read() as connection:
        return standings(connection, {"search": policy}, organisations, NOW)


def test_a_teams_budget_has_its_spend_and_a_forecast_with_an_interval(any_database: Database) -> None:
    book(any_database, *(row(at=JANUARY + day * DAY, cost_pico=USD) for day in range(20)))
    (one,) = standing(any_database, Budget(limit_usd=Decimal(25)))
    assert (one["spent_usd"], one["limit_usd"], one["left_usd"], one["used"]) == ("20", "25", "5", 0.8)
    assert (one["budget"], one["start"], one["end"]) == ("month", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
    low, middle, high = (Decimal(one["forecast"][f"total_usd{which}"]) for which in ("_low", "", "_high"))
    assert 25 < low <= middle <= high
    assert one["forecast"]["exhausted_at"] is not None


def test_tokens_are_whole_numbers_and_a_total_has_no_end(any_database: Database) -> None:
    book(any_database, row(at=NOW - 1))
    (one,) = standing(any_database, Budget(limit_tokens=70, window="total", hard=False, name="tries"))
    assert (one["spent_tokens"], one["limit_tokens"], one["left_tokens"]) == (35, 70, 35)
    assert (one["budget"], one["end"], one["hard"]) == ("tries", None, False)


def test_keys_with_budgets_of_their_own_are_named_the_dearest_first(any_database: Database) -> None:
    book(any_database, *(row(at=NOW - 1, key_id=f"key-{number:02}", cost_pico=number + 1) for number in range(25)))
    found = standing(any_database, Budget(limit_usd=Decimal(1), per="key"))
    assert len(found) == MOST_SUBJECTS
    assert (found[0]["subject"], found[0]["spent_usd"]) == ("key-24", "0.000000000025")


def test_an_organisations_budget_counts_all_its_teams(any_database: Database) -> None:
    book(any_database, row(at=NOW - 1, cost_pico=USD), row(at=NOW - 1, team="chat", cost_pico=USD))
    shared = Budget(limit_usd=Decimal(4), per="organisation")
    (one,) = standing(any_database, acme=(shared,), other=(shared,))
    assert (one["organisation"], one["team"], one["spent_usd"]) == ("acme", None, "2")
