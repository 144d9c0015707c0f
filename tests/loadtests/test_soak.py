"""The soak's judges as tables, and seven seconds of it for real."""

from __future__ import annotations

import pytest

from loadtests.matrix_judge import Row
from loadtests.soak import soak, table
from loadtests.soak_judge import MIB, account, growth, lines, missing, more
from loadtests.soak_mix import KINDS, Tally
from loadtests.soak_sample import Occupied, Sampled


def sampled(at: float, mib: float = 50.0, descriptors: int = 30, tasks: int = 40, gone: bool = False) -> Sampled:
    worker = Occupied(int(mib * MIB), int(mib * MIB), descriptors, 5)
    return Sampled(at, {} if gone else {"worker 0": worker}, tasks, 0, 0, 0)


def judged(samples: list[Sampled]) -> list[str]:
    return [line.what for line in lines(samples, 10_000) if not line.ok]


def test_growth_is_what_the_line_through_the_last_two_thirds_gains() -> None:
    times = [float(at) for at in range(90)]
    assert growth(times, [5.0] * 90) == pytest.approx(0)
    assert growth(times, [100.0 * at if at < 30 else 3000.0 for at in range(90)]) == pytest.approx(0)
    assert growth(times, [2.0 * at for at in range(90)]) == pytest.approx(2.0 * 59)
    assert growth([1.0], [1.0]) == 0


def test_a_single_busy_moment_is_no_growth() -> None:
    assert more([10.0] * 20 + [90.0] + [10.0] * 9) == 0
    assert more([10.0] * 20 + [15.0] * 10) == 5


def test_a_plateau_passes_and_a_leak_does_not() -> None:
    times = [5.0 * at for at in range(60)]
    assert judged([sampled(at, mib=60 if at > 50 else 20) for at in times]) == []
    assert judged([sampled(at, mib=50 + at / 30) for at in times]) == ["worker 0 PSS MiB", "worker 0 RSS MiB"]
    assert judged([sampled(at, descriptors=30 + int(at / 10)) for at in times]) == ["worker 0 descriptors"]
    assert judged([sampled(at, tasks=40 + int(at)) for at in times]) == ["tasks of a loop"]


def test_a_process_that_was_away_is_told() -> None:
    assert missing([sampled(0.0), sampled(5.0, gone=True)]) == ["worker 0 was not always there"]


def test_the_accounts_of_clients_providers_and_ledger_must_agree() -> None:
    ok = Row("a", "plain", 1, "first", "ok", 5, 20, False, 1)
    hit = Row("h", "cached", 0, "", "ok", 5, 20, False, 0)
    broken = Row("b", "plain", 1, "first", "interrupted", 5, 3, True, 1)
    tally = Tally(answers={"a": (5, 20)}, hits=1)
    assert account(tally, [ok, hit, broken], {"first": 2}) == []
    assert account(tally, [hit, broken], {"first": 1}) == ["1 answers have no row"]
    assert account(tally, [ok._replace(output_tokens=9), hit], {"first": 1}) == [
        "1 rows do not have the tokens that the client saw"
    ]
    assert account(tally, [ok], {"first": 1}) == ["1 hits, 0 rows of them"]
    assert account(tally, [ok, hit], {"first": 2}) == ["the providers saw 2 calls, the ledger has 1 (1 served)"]


def test_the_parts_of_the_mix_make_a_hundred() -> None:
    assert sum(KINDS.values()) == 100


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_a_short_soak_keeps_its_accounts() -> None:
    seen = soak(0.12, 40, 1.0, 7, 1)
    assert [what for what in seen.complaints if "grew" not in what] == []  # too short to tell growth from a start
    assert seen.tally.asked.total() > 40
    assert len(table(seen.figures)) > 5
