"""The hard mix: what its verdict says, and three small runs of the real thing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from loadtests.budget_hard import UNBOUNDED, Outcome, question
from loadtests.hard_provider import Call, Meter

REPOSITORY = Path(__file__).parents[2]


def test_questions_are_the_seed_s_and_of_every_kind() -> None:
    drawn = [question(3, number) for number in range(300)]
    assert drawn == [question(3, number) for number in range(300)]
    assert {kind for kind, _ in drawn} > {"stream", "burst", "thinking", "plain", "document", *UNBOUNDED}


def test_the_meter_knows_what_calls_under_way_will_cost() -> None:
    meter = Meter([Call("plain", 100, 50, generated=10), Call("plain", 100, 50, generated=20, over=True)])
    assert meter.bill_usd == pytest.approx((200 * 1 + 30 * 10) / 1e6)
    assert meter.final_usd == pytest.approx((200 * 1 + 70 * 10) / 1e6)
    assert meter.open == 1


@pytest.mark.parametrize(
    ("outcome", "passed"),
    [
        (Outcome(1, False, overshoot=-0.001, usable=0.99), True),
        (Outcome(1, False, overshoot=0.0011, usable=0.99), False),
        (Outcome(1, False, usable=0.96), False),
        (Outcome(1, False, usable=0.99, false_refusals=1), False),
        (Outcome(1, True, overshoot=0.01, unsettled=0.0095, usable=0.98), True),
        (Outcome(1, True, overshoot=0.01, unsettled=0.001, usable=0.98), False),
    ],
)
def test_what_a_killed_worker_could_not_book_is_its_allowance(outcome: Outcome, passed: bool) -> None:
    assert outcome.passed is passed


@pytest.mark.heavy
@pytest.mark.timeout(240)
def test_three_seeds_keep_every_bar(tmp_path: Path) -> None:
    options = ["--seeds", "3", "--seed", "11", "--limit-usd", "6", "--clients", "48", "--kill", "never"]
    command = [sys.executable, "-m", "loadtests", "budget", "--mix", "hard", *options, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=220, check=False)
    found = orjson.loads((tmp_path / "budget-hard.json").read_bytes())["outcomes"]
    assert done.returncode == 0, done.stdout
    assert len(found) == 3
    assert all(one["overshoot"] <= 0.001 and one["usable"] >= 0.97 for one in found)
