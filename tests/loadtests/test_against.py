"""Two checkouts side by side: rounds are paired, void ones left out, and the median decides."""

from __future__ import annotations

import pytest

from loadtests.against import OURS, THEIRS, Ratio, beside
from loadtests.cells import chosen
from loadtests.client import Outcome
from loadtests.measure import Figure


def figure(target: str, number: int, cpu_s: float, p50: float = 1.0, void: str = "") -> Figure:
    return Figure("1k-c16", target, target, number, Outcome(right=1000, latency_ms={"p50": p50}), cpu_s, void=void)


def test_each_round_is_compared_with_itself_and_void_rounds_do_not_count() -> None:
    figures = [figure(OURS, 1, 0.2), figure(THEIRS, 1, 0.1), figure(OURS, 2, 0.3, p50=3.0), figure(THEIRS, 2, 0.3)]
    figures += [figure(OURS, 3, 9.0), figure(THEIRS, 3, 0.1, void="an answer was lost")]
    ratio = Ratio.of("1k-c16", figures)
    assert sorted(ratio.cpu) == pytest.approx([1.0, 2.0])
    assert sorted(ratio.p50) == pytest.approx([1.0, 3.0])
    assert ratio.void == 1
    assert "1.500 (1.000–2.000)" in ratio.line()


@pytest.mark.parametrize(("cpu", "dearer"), [((1.0, 1.01, 1.5), False), ((1.0, 1.03, 1.04), True), ((), True)])
def test_the_median_decides(cpu: tuple[float, ...], dearer: bool) -> None:
    assert Ratio("1k-c16", cpu, cpu).dearer(2.0) is dearer


def test_a_cell_has_both_checkouts_in_it() -> None:
    (cell,) = map(beside, chosen("1k", (16,)))
    assert [entry.target for entry in cell.entries] == [OURS, THEIRS]
