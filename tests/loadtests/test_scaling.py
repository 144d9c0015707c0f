"""The costs with several workers, and the estimate for machines with more cores."""

from __future__ import annotations

import pytest

from loadtests.cells import Size, chosen
from loadtests.scaling import USED, Cost, kind_of, measured, typical


def test_the_estimate_names_what_limits_a_machine() -> None:
    cost = Cost(workers=250.0, supervisor=40.0, state=10.0)
    assert cost.total == 300
    assert cost.most_per_s(3) == (int(USED * 10_000), "all cores")
    assert cost.most_per_s(30) == (int(USED * 25_000), "ledger's writer")
    assert Cost(250.0, 10.0, 40.0).most_per_s(30)[1] == "state server"


def test_each_process_is_of_one_kind() -> None:
    assert [kind_of(name) for name in ("tg-worker-3", "valkey-server", "python")] == ["workers", "state", "supervisor"]


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_workers_are_measured_with_their_books() -> None:
    (cell,) = chosen("1k-c16", (16,))
    size = Size(rounds=1, requests=300, cpu_s=50.0, least_cpu_s=0.0, seconds=20.0, warm=16)
    rounds = measured([1, 2], cell, size, lambda text: None)
    assert [(each.workers, each.void) for each in rounds] == [(1, ""), (2, "")]
    assert all(each.per_s > 0 and each.cost.workers > each.cost.state for each in rounds)
    assert typical(rounds).total > 0
