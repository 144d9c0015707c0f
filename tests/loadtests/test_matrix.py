"""The matrix' judges as tables, and one of its cells for real."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from loadtests.matrix import matrix, until_told_to_end
from loadtests.matrix_cells import CELLS, CUT, SPENT, Expect, chosen
from loadtests.matrix_judge import Phases, Row, allowed, complaints, money_complaints, recovery_s, usual
from loadtests.matrix_load import Look, Sample, understood
from loadtests.matrix_run import Result
from loadtests.matrix_table import lines

PHASES = Phases(struck=10.0, noticed=12.0, mended=20.0, ended=30.0)
PLAIN = Sample("free", 5.0, 0.1, 200, backend="first", request_id="r", tokens=(7, 20))
REFUSES = Expect(refusals={"strict": (SPENT,)}, mostly_refused=frozenset({"strict"}))


def load(during: list[Sample], after: list[Sample] | None = None) -> list[Sample]:
    """Everybody is answered before, and until the end beside what is given."""
    teams = ("strict", "lenient", "free", "cached")
    before = [replace(PLAIN, team=team, at=at) for team in teams for at in (2.0, 4.0)]
    missing = set(teams) - {sample.team for sample in during}
    others = [replace(PLAIN, team=team, at=15.0) for team in missing]
    return [*before, *during, *others, *(after or [replace(PLAIN, at=25.0)])]


def look(at: float, *, ready: int = 200, state: str = "ok", **metrics: float) -> Look:
    return Look(at, ready, {"state": state, "backends": {"first": "resting"}}, metrics)


def refused(team: str, at: float, degraded: str = "state") -> Sample:
    return Sample(team, at, 0.01, 429, "insufficient_quota", degraded)


def test_a_cell_ends_in_order_at_sigterm() -> None:
    async def endless() -> Result:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        raise AssertionError

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert asyncio.run(until_told_to_end(endless())) is None
    finally:
        signal.signal(signal.SIGTERM, before)


def judged(expect: Expect, during: list[Sample], after: list[Sample] | None = None, *looks: Look) -> str:
    return "; ".join(complaints(expect, PHASES, load(during, after), looks, 6.0))


def test_a_quiet_run_is_as_declared() -> None:
    assert judged(Expect(), []) == ""


@pytest.mark.parametrize(
    ("expect", "during", "words"),
    [
        (Expect(), [refused("strict", 15.0, "")], "not declared: 1 × strict 429 insufficient_quota"),
        (Expect(), [replace(PLAIN, at=15.0, status=0, code="hung", took_s=12.0)], "took 12.0 s"),
        (Expect(), [replace(PLAIN, at=15.0, degraded="state")], "x-thriftgate-degraded says"),
        (REFUSES, [replace(PLAIN, team="strict", at=15.0)], "strict should be refused, 100% was answered"),
        (Expect(answered={"cached": 0.5}), [refused("cached", 15.0)], "cached should be answered at 50%, was at 0%"),
        (
            Expect(degraded="state", told=frozenset({"free"})),
            [replace(PLAIN, at=15.0)],
            "0% of free's replies say degraded: state",
        ),
        (Expect(served_by="second"), [replace(PLAIN, at=15.0)], "second should serve, gave 0% of the answers"),
    ],
)
def test_what_is_not_declared_is_told(expect: Expect, during: list[Sample], words: str) -> None:
    assert words in judged(expect, during)


def test_before_it_is_noticed_the_old_ways_are_allowed() -> None:
    early, later = replace(PLAIN, team="strict", at=11.0), [refused("strict", at) for at in (13.0, 14.0)]
    expect = replace(REFUSES, degraded="state", told=frozenset({"strict"}))
    assert judged(expect, [early, *later]) == ""


def test_a_request_that_still_waits_at_the_mending_may_be_answered() -> None:
    waiting = replace(PLAIN, team="strict", at=15.0, took_s=5.1)
    assert judged(REFUSES, [waiting, refused("strict", 15.0, "")]) == ""
    assert "strict should be refused, 50% was answered" in judged(
        REFUSES, [replace(waiting, took_s=1.0), refused("strict", 15.0, "")]
    )


def test_the_tight_team_may_run_out_of_money_at_any_time() -> None:
    for sample in (replace(refused("tight", 15.0), degraded=""), Sample("tight", 15.0, 0.1, 0, CUT.split()[1])):
        assert allowed(sample, Expect())
        assert usual(sample)
    assert not allowed(replace(refused("free", 15.0), degraded=""), Expect())


def test_recovery_counts_from_the_mending_to_the_last_odd_reply() -> None:
    after = [replace(PLAIN, at=23.0, degraded="state"), replace(PLAIN, at=29.0)]
    assert recovery_s(Expect(), PHASES, load([], after)) == 3.0
    assert "not as before after 3.0 s" in judged(Expect(recovery_s=2.0), [], after)
    elsewhere = [replace(PLAIN, at=24.0, backend="second")]
    assert recovery_s(Expect(back_to="first"), PHASES, load([], elsewhere)) == 4.0


def test_without_a_request_after_the_mending_nothing_is_proved() -> None:
    samples = [sample for sample in load([]) if sample.at < 20]
    assert "nothing was asked after the mending" in complaints(Expect(), PHASES, samples, [], 6.0)


@pytest.mark.parametrize(
    ("expect", "looks", "words"),
    [
        (Expect(), [look(15.0, ready=503)], "/health/ready said {503: 1} of 1"),
        (Expect(health=("state", "down")), [look(15.0)], "/health never showed state down"),
        (Expect(health=("state", "down")), [look(15.0, state="down")], ""),
        (Expect(health=("backends.first", "")), [look(15.0)], ""),
        (Expect(metric=("up.*", 0)), [look(5.0, up_a=3), look(15.0, up_a=3)], "/metrics: up.* never rose above 3"),
        (Expect(metric=("up.*", 0)), [look(5.0, up_a=3), look(25.0, up_a=2, up_b=2)], ""),
    ],
)
def test_health_and_metrics_must_show_it(expect: Expect, looks: list[Look], words: str) -> None:
    assert judged(expect, [], None, *looks) == words


def test_every_answer_has_one_row_with_the_tokens_that_were_seen() -> None:
    row = Row("r", "free", 1, "first", "ok", 7, 20, False, 87_000_000)
    assert money_complaints([PLAIN], [row], {"free": 0.0001}, {"first": (1, 20)}) == []
    for rows, words in (
        ([], "1 answers: 0 rows"),
        ([row, row._replace(attempt=2)], "1 answers: 2 rows"),
        ([row._replace(output_tokens=21)], "tokens 7+21, the client saw (7, 20)"),
        ([row._replace(cost_pico=10**9)], "free spent 0.001000 USD of 0.0001"),
    ):
        assert words in "; ".join(money_complaints([PLAIN], rows, {"free": 0.0001}, {}))
    assert money_complaints([PLAIN], [row], {}, {"first": (2, 40)}) == [
        "first sent 2 answers, not all are on the ledger"
    ]
    hit = replace(PLAIN, cache="exact")
    assert money_complaints([hit], [row._replace(attempt=0, backend="", cost_pico=0)], {}, {}) == []
    assert money_complaints([hit], [row], {}, {}) == ["1 answers: a cache hit that cost"]


@pytest.mark.parametrize(
    ("status", "text", "stream", "found"),
    [
        (200, b'{"usage": {"prompt_tokens": 7, "completion_tokens": 20}}', False, ("", (7, 20))),
        (429, b'{"error": {"code": "insufficient_quota"}}', False, ("insufficient_quota", (0, 0))),
        (200, b"data: {}\n\n", True, ("cut", (0, 0))),
        (200, b'data: {"error": {"code": "insufficient_quota"}}\n\n', True, ("insufficient_quota", (0, 0))),
        (200, b'data: {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}\n\ndata: [DONE]\n\n', True, ("", (1, 2))),
        (200, b"<html>", False, ("unreadable", (0, 0))),
    ],
)
def test_an_answer_is_understood(status: int, text: bytes, stream: bool, found: object) -> None:
    assert understood(status, text, stream) == found


def test_every_part_and_fault_of_the_matrix_is_declared() -> None:
    for part in ("state", "database", "backend", "embedder", "disk"):
        assert {cell.fault for cell in chosen(part)} >= {"killed", "frozen", "slow", "full"}
    assert chosen("") == list(CELLS)
    with pytest.raises(ValueError, match="there is no 'stat'"):
        chosen("disk,stat")


def test_a_cell_that_was_not_run_is_no_pass() -> None:
    result = Result(CELLS[0], not_run="no loop device")
    assert not result.ok
    assert "0 of 1 cells are as declared" in lines([result])[-1]


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_a_state_that_is_killed_shows_as_declared(tmp_path: Path) -> None:
    (killed,) = chosen("state:killed")
    (result,) = matrix([killed], 2, tmp_path, say=False)
    # The sums per provider are the command's business: one does not count an answer whose last byte it saw refused.
    assert [complaint for complaint in result.complaints if "the ledger has" not in complaint] == []
    assert result.rows > 100
