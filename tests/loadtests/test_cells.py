"""Which cells a pattern means."""

from __future__ import annotations

import pytest

from loadtests.cells import GET, LRU, Cell, chosen
from loadtests.command import Options, plan
from loadtests.footprint import Extent

AGENTS = ("agent", "session", "agent-messages", "session-messages", "agent-responses", "session-responses")


def names(cells: tuple[Cell, ...]) -> list[str]:
    return [cell.name for cell in cells]


def test_without_a_pattern_every_workload_is_measured_at_every_concurrency() -> None:
    cells = chosen("", (1, 64))
    alone = sum(cell.workload.startswith("session") for cell in cells)
    assert (alone, len(cells)) == (3, 2 * len({cell.workload for cell in cells}) - alone)


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ("1k", ["1k-c1", "1k-c64"]),
        ("1k-c64, paced", ["1k-c64", "paced-c1", "paced-c64"]),
        (
            "*-c1",
            [f"{name}-c1" for name in ("1k", "32k", "burst", "paced", *AGENTS, "lru", "get", "known", "long", "new")],
        ),
    ],
)
def test_a_pattern_is_a_workload_or_a_cell(patterns: str, found: list[str]) -> None:
    assert names(chosen(patterns, (1, 64))) == found


def test_an_agent_is_measured_in_each_dialect_in_many_sessions_and_in_one() -> None:
    cells = chosen("agent*,session*", (1, 64))
    assert names(chosen("session*", (64,))) == ["session-c1", "session-messages-c1", "session-responses-c1"]
    assert {cell.shape.dialect for cell in cells} == {"chat", "messages", "responses"}
    assert {(cell.shape.at_a_time, cell.shape.turns) for cell in cells} == {(32, 100), (64, 100), (1, 30)}
    assert all(cell.shape.at_a_time >= cell.concurrency for cell in cells)


def test_what_is_embedded_is_asked_for_gently_and_once() -> None:
    assert names(chosen("new", (1, 16, 64))) == ["new-c1", "new-c4"]


def test_a_pattern_that_means_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no cell is called '2k'; there are 1k-c1"):
        chosen("2k", (1,))


def test_hits_are_divided_by_misses_of_the_same_gateway() -> None:
    by_name = {cell.workload: cell for cell in chosen("lru,get", (16,))}
    assert all(cell.base == "miss" for cell in by_name.values())
    distinct = {name: [entry.distinct for entry in cell.entries] for name, cell in by_name.items()}
    assert distinct == {"lru": [0, LRU], "get": [0, GET]}


def test_the_footprint_is_part_of_everything_and_can_be_asked_for_alone() -> None:
    assert plan(Options()).footprint == Extent()
    alone = plan(Options(cells="footprint"))
    assert (alone.cells, alone.footprint) == ((), Extent())
    assert plan(Options(cells="1k")).footprint is None


def test_quick_is_smaller_in_every_respect() -> None:
    quick, full = plan(Options(quick=True)), plan(Options())
    assert quick.size.requests < full.size.requests
    assert quick.size.rounds < full.size.rounds
    assert len(quick.cells) < len(full.cells)
    assert plan(Options(quick=True, rounds=7, requests=50)).size.rounds == 7
