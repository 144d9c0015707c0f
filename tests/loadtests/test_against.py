"""Two checkouts side by side: rounds are paired, void ones left out, and the median decides."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loadtests.against import OURS, THEIRS, Ratio, beside, compare, main
from loadtests.cells import GET, LRU, Size, chosen
from loadtests.client import Outcome
from loadtests.measure import Figure
from loadtests.processes import REPOSITORY, python_of


def figure(target: str, number: int, cpu_s: float, p50: float = 1.0, void: str = "") -> Figure:
    name, outcome = f"{target} thriftgate", Outcome(right=1000, latency_ms={"p50": p50})
    return Figure("1k-c16", name, name, number, outcome, cpu_s, void=void)


def test_each_round_is_compared_with_itself_and_void_rounds_do_not_count() -> None:
    figures = [figure(OURS, 1, 0.2), figure(THEIRS, 1, 0.1), figure(OURS, 2, 0.3, p50=3.0), figure(THEIRS, 2, 0.3)]
    figures += [figure(OURS, 3, 9.0), figure(THEIRS, 3, 0.1, void="an answer was lost")]
    ratio = Ratio.of("1k-c16", "thriftgate", figures)
    assert sorted(ratio.cpu) == pytest.approx([1.0, 2.0])
    assert sorted(ratio.p50) == pytest.approx([1.0, 3.0])
    assert ratio.void == 1
    assert "1.500 (1.000–2.000)" in ratio.line()


@pytest.mark.parametrize(("cpu", "dearer"), [((1.0, 1.01, 1.5), False), ((1.0, 1.03, 1.04), True), ((), True)])
def test_the_median_decides(cpu: tuple[float, ...], dearer: bool) -> None:
    assert Ratio("1k-c16", "thriftgate", cpu, cpu).dearer(2.0) is dearer


@pytest.mark.parametrize(
    ("cell", "rows"),
    [
        ("1k", [("thriftgate", 0, False)]),
        ("get", [("thriftgate", 0, False), ("thriftgate", GET, False)]),
        ("lru", [("thriftgate", 0, False), ("thriftgate", LRU, True)]),
        ("known", [("everything", 0, False)]),
    ],
)
def test_a_cell_keeps_what_it_is_about_in_both_checkouts(cell: str, rows: list[tuple[str, int, bool]]) -> None:
    (found,) = map(beside, chosen(cell, (16,)))
    entries = [(entry.target, entry.distinct, entry.from_memory) for entry in found.entries]
    assert entries == [(f"{side} {target}", *rest) for target, *rest in rows for side in (OURS, THEIRS)]
    assert len({entry.name for entry in found.entries}) == len(entries)


def test_rows_of_a_cell_are_not_mixed() -> None:
    hits = [replace(figure(side, 1, cpu_s), entry=f"{side} hit") for side, cpu_s in ((OURS, 0.1), (THEIRS, 0.2))]
    ratio = Ratio.of("get-c16", "hit", [figure(OURS, 1, 9.0), *hits, figure(THEIRS, 1, 0.1)])
    assert ratio.cpu == pytest.approx([0.5])


def test_another_checkout_runs_on_its_own_virtual_environment_if_it_has_one(tmp_path: Path) -> None:
    assert python_of(tmp_path) == sys.executable
    own = tmp_path / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    assert python_of(tmp_path) == str(own)


def test_a_folder_without_a_gateway_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--against", str(tmp_path)])
    assert "is no checkout of the gateway" in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_a_tiny_comparison_measures_hits_and_misses_of_both(tmp_path: Path) -> None:
    size = Size(rounds=1, requests=40, cpu_s=50.0, least_cpu_s=0.0, seconds=10.0, warm=8)
    found = compare(chosen("lru", (2,)), REPOSITORY, size, data=tmp_path)
    assert [(ratio.entry, len(ratio.cpu) + ratio.void) for ratio in found] == [("miss", 1), ("hit", 1)]
    assert any(ratio.cpu for ratio in found)  # on a busy machine a round may be void
    assert not any(tmp_path.iterdir())
