"""The budget experiment: its lengths, its naive ways, its verdicts; and a small run of the real thing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from loadtests.budget import Options, Outcome
from loadtests.budget_naive import outcomes
from loadtests.budget_stage import MAX_TOKENS, PROMPT_TOKENS, Call, Stage, lengths

REPOSITORY = Path(__file__).parents[2]


def test_lengths_are_skewed_and_the_seed_s() -> None:
    drawn = [lengths(3)(number) for number in range(2000)]
    assert drawn == [lengths(3)(number) for number in range(2000)]
    assert drawn != [lengths(4)(number) for number in range(2000)]
    assert 70 < sorted(drawn)[1000] < 90
    assert 115 < sum(drawn) / 2000 < 140
    assert (min(drawn) >= 1, max(drawn)) == (True, MAX_TOKENS)


def test_headroom_is_what_answers_under_way_will_leave() -> None:
    stage = Stage(1000, 1, 0.01)
    stage.calls += [Call(0, 200, sent=50), Call(1, 300, sent=100, over=True)]
    assert stage.headroom() == 1000 - 2 * PROMPT_TOKENS - 200 - 100
    assert stage.delivered == 2 * PROMPT_TOKENS + 150
    assert stage.open == 1


def test_counting_after_overruns_and_reserving_the_most_refuses_what_would_fit() -> None:
    after, reserve, after_killed, reserve_killed = outcomes(Options(seed=5), PROMPT_TOKENS)
    assert after.overshoot > 0.5
    assert not after.false_refusals
    assert reserve.overshoot <= 0
    assert reserve.usable < 0.98
    assert reserve.false_refusals > 0
    assert min(after_killed.unsettled, reserve_killed.unsettled) > 0


@pytest.mark.parametrize(
    ("overshoot", "usable", "false", "passed"),
    [(0.001, 0.98, 0, True), (0.0011, 0.99, 0, False), (0, 0.979, 0, False), (-0.01, 0.99, 1, False)],
)
def test_each_bar_is_judged(overshoot: float, usable: float, false: int, passed: bool) -> None:
    assert Outcome("x", overshoot, usable, false, 10, 10, 10, 0, 0).passed is passed


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_a_small_run_ends_with_a_table_json_and_a_verdict(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtests", "budget", "--budget", "1500", "--streams", "8", "--workers", "2"]
    command += ["--pace-ms", "4", "--seed", "3", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=110)
    assert "seed 3" in done.stderr
    assert "count after" in done.stdout
    found = orjson.loads((tmp_path / "budget.json").read_bytes())["outcomes"]
    assert [one["name"] for one in found[:2]] == ["thriftgate", "thriftgate, a worker killed"]
    assert found[0]["unsettled"] == 0
    assert found[0]["overshoot"] <= 0
    assert found[0]["usable"] > 0.9
    assert done.returncode == int(not all(one["passed"] for one in found if one["judged"]))
