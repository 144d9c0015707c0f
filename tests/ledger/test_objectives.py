"""Objectives for quality: which judged answers count, for which class, and when an objective is missed."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert

from gateway.domain.policy import Policy
from gateway.ledger.reports.objectives import Objective, read
from gateway.ledger.store.evidence import Finding, write
from gateway.state.sql.database import Database
from gateway.state.sql.tables import feedback
from tests.ledger.booked import DAY, JANUARY, book, row

POLICY = Policy.model_validate({"team": "search", "slo": {"objective": "90%", "window": "10d"}})
NOW = JANUARY + 5 * DAY


def served(database: Database, name: str, **facts: Any) -> None:
    usual = {"request_id": name, "id": f"{name}-{facts.get('attempt', 1)}", "at": NOW - DAY / 2, "backend": "small"}
    book(database, row(**{**usual, "traffic_class": "en/text/opening", **facts}))


def compared(database: Database, name: str, score: float, at: float = NOW - DAY / 2, backend: str = "small") -> None:
    finding = Finding(name, "search", backend, "large", "shadow", "agreement", 0.95, 0.95, score)
    with database.begin() as connection:
        write(connection, [finding], at)


def objectives(database: Database, policy: Policy = POLICY) -> dict[str, Objective]:
    with database.read() as connection:
        return {one.traffic_class: one for one in read(connection, policy, NOW)}


def fill(database: Database, good: int, bad: int, traffic_class: str, days_ago: float = 0.5) -> None:
    for number in range(good + bad):
        name = f"{traffic_class}-{days_ago}-{number}"
        served(database, name, traffic_class=traffic_class, at=NOW - days_ago * DAY)
        compared(database, name, float(number < good), NOW - days_ago * DAY)


def test_an_objective_may_be_a_bare_share_and_without_one_nothing_is_read(any_database: Database) -> None:
    assert Policy.model_validate({"team": "search", "slo": "97%"}).slo.objective == 0.97
    assert Policy.model_validate({"team": "search", "slo": 0.97}).slo.window == 30 * DAY
    with pytest.raises(ValueError, match="slo"):
        Policy.model_validate({"team": "search", "slo": "100%"})
    assert objectives(any_database, Policy(team="search")) == {}


def test_each_class_has_its_own_error_budget(any_database: Database) -> None:
    fill(any_database, 40, 0, "en/text/opening")
    fill(any_database, 10, 10, "es/text/opening")
    found = objectives(any_database)
    assert found["en/text/opening"].state == "met"
    assert found["en/text/opening"].budget_left == 1
    assert found["es/text/opening"].state == "missed"
    assert found["es/text/opening"].budget_left == pytest.approx(-4)
    assert (found["all"].judged, found["all"].quality) == (60, pytest.approx(50 / 60))
    assert found["all"].requests.served == 60


def test_a_drop_burns_before_the_whole_windows_budget_is_spent(any_database: Database) -> None:
    fill(any_database, 200, 0, "en/text/opening", days_ago=6)
    fill(any_database, 10, 10, "en/text/opening", days_ago=0.5)
    found = objectives(any_database)["en/text/opening"]
    assert (found.state, found.burn_rate) == ("burning", pytest.approx(5))


def test_few_judged_answers_prove_nothing(any_database: Database) -> None:
    fill(any_database, 5, 4, "en/text/opening")
    assert objectives(any_database)["en/text/opening"].state == "unknown"


def test_only_answers_that_a_client_got_count(any_database: Database) -> None:
    served(any_database, "a", backend="large")  # `small` was asked in the background
    compared(any_database, "a", 0.0)
    served(any_database, "b", outcome="escalated")
    served(any_database, "b", attempt=2, backend="large", escalated=True)
    compared(any_database, "b", 0.0)
    served(any_database, "c", team="chat")  # another team's request
    compared(any_database, "c", 0.0)
    served(any_database, "d", at=NOW - 20 * DAY)
    compared(any_database, "d", 0.0, NOW - 20 * DAY)
    found = objectives(any_database)["all"]
    assert (found.judged, found.quality, found.burn_rate) == (0, None, None)
    assert (found.requests.served, found.requests.escalated) == (2, 1)


def test_ratings_weigh_less_and_are_compared_with_the_usual_one(any_database: Database) -> None:
    for number, score in enumerate((1.0, 0.0, 0.0)):  # the newest two of a key count
        served(any_database, f"r{number}")
        values = {"request_id": f"r{number}", "team": "search", "key_id": "k", "backend": "small", "score": score}
        with any_database.begin() as connection:
            connection.execute(insert(feedback).values(at=NOW - DAY, **values))
    found = objectives(any_database)["all"]
    assert (found.judged, found.bad) == (0.5, pytest.approx(0.4))
