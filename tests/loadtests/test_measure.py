"""A run counts only if the answers are right and the ledger has what the upstream sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtests.client import Outcome
from loadtests.configs import PRICE_PICO
from loadtests.ledgers import Sums
from loadtests.measure import fault_of, load_of, unbilled
from loadtests.questions import Shape
from loadtests.targets import Target

OUTCOME = Outcome(right=100, input_tokens=5000, output_tokens=300)
SENT = {"requests": 100, "input_tokens": 5000, "output_tokens": 300, "cut_off": 0}
COST = 5000 * PRICE_PICO[0] + 300 * PRICE_PICO[1]
BOUGHT = Sums(100, 5000, 300, COST, 100, 0, 0)
NONE = Sums(0, 0, 0, 0, 0, 0, 0)
HITS = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cut_off": 0}


def test_right_answers_that_all_came_from_the_upstream_count() -> None:
    assert fault_of(OUTCOME, SENT, hits=False) == ""


def test_hits_count_when_the_upstream_was_not_asked() -> None:
    assert fault_of(OUTCOME, HITS, hits=True) == ""


@pytest.mark.parametrize(
    ("outcome", "sent", "hits", "told"),
    [
        (replace(OUTCOME, wrong=1, faults=["it lied"]), SENT, False, "1 wrong and 0 lost answers: it lied"),
        (replace(OUTCOME, lost=2), SENT, False, "2 lost"),
        (Outcome(), SENT, False, "no answer at all"),
        (replace(OUTCOME, degraded={"state": 3}), SENT, False, "degraded"),
        (OUTCOME, {**SENT, "requests": 101}, False, "the upstream sent 101 answers, 100 arrived"),
        (OUTCOME, {**SENT, "output_tokens": 299}, False, "tokens"),
        (OUTCOME, {**SENT, "cut_off": 1}, False, "cut off"),
        (OUTCOME, {**HITS, "requests": 3}, True, "no hits"),
    ],
)
def test_anything_else_does_not(outcome: Outcome, sent: dict[str, int], hits: bool, told: str) -> None:
    assert told in fault_of(outcome, sent, hits=hits)


def test_a_ledger_that_has_what_was_sent_is_right() -> None:
    assert unbilled(OUTCOME, SENT, BOUGHT, NONE) == ""


def test_a_ledger_that_has_the_hits_at_no_cost_is_right() -> None:
    assert unbilled(OUTCOME, HITS, NONE, Sums(100, 5000, 300, 0, 100, 0, 0)) == ""


@pytest.mark.parametrize(
    ("bought", "recalled", "told"),
    [
        (BOUGHT._replace(rows=99), NONE, "upstream: (100, 5000, 300)"),
        (BOUGHT._replace(rows=101), NONE, "upstream"),
        (BOUGHT._replace(input_tokens=5001), NONE, "upstream"),
        (BOUGHT._replace(output_tokens=299), NONE, "upstream"),
        (BOUGHT._replace(cost_pico=COST - 1), NONE, "pico-dollars"),
        (BOUGHT, NONE._replace(rows=1), "rows from the cache"),
        (BOUGHT._replace(not_ok=1), NONE, "1 rows not ok"),
        (BOUGHT._replace(estimated=1), NONE, "1 estimated"),
        (BOUGHT, NONE._replace(input_tokens=1), "tokens from the cache"),
    ],
)
def test_a_ledger_that_differs_makes_the_run_void(bought: Sums, recalled: Sums, told: str) -> None:
    assert told in unbilled(OUTCOME, SENT, bought, recalled)


def test_hits_that_cost_something_make_the_run_void() -> None:
    assert "free of charge" in unbilled(OUTCOME, HITS, NONE, Sums(100, 5000, 300, 1, 100, 0, 0))


def test_an_agent_asks_for_the_model_of_its_dialect_with_a_key_of_its_own() -> None:
    target = Target("thriftgate", 1, keys={"": "plain", "hits": "hits", "agents": "agents"})
    agent = Shape("calls", turns=30, dialect="messages")
    asked = [load_of(agent, target, 1), load_of(Shape(), target, 1), load_of(Shape(), target, 1, hits=True)]
    assert [(load.key, load.model) for load in asked] == [
        ("agents", "loadtest-messages"),
        ("plain", "loadtest"),
        ("hits", "loadtest"),
    ]
    assert load_of(agent, Target("nginx", 1), 1).key == "none"
