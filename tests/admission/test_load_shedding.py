from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import pytest

from gateway.admission.load_shedding import LOOKS, LoadShedder, Reason, refuses
from gateway.errors import InvalidKey, Overloaded
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("total", "mine", "teams", "why"),
    [
        (0, 0, 1, ""),
        (89, 89, 1, ""),
        (90, 90, 1, "full"),  # alone, but the last tenth is for those who come later
        (90, 0, 2, ""),
        (90, 90, 2, "share"),
        (90, 49, 2, ""),
        (90, 50, 2, "share"),
        (90, 24, 4, ""),
        (90, 25, 4, "share"),
        (99, 0, 2, ""),
        (100, 0, 2, "full"),
        (95, 0, 101, "share"),  # a share of less than one
    ],
)
def test_near_the_bound_a_team_above_its_share_is_refused_first(total: int, mine: int, teams: int, why: Reason) -> None:
    assert refuses(100, 100, total, mine, teams, batch=False, batches=0) == why


@pytest.mark.parametrize(
    ("total", "batches", "why"),
    [(79, 79, ""), (80, 80, "batch"), (80, 5, "batch"), (80, 4, ""), (99, 0, ""), (100, 0, "full")],
)
def test_batch_is_refused_before_interactive_but_has_a_twentieth_of_its_own(
    total: int, batches: int, why: Reason
) -> None:
    assert refuses(100, 100, total, 0, 2, batch=True, batches=batches) == why


@pytest.mark.parametrize(("mine", "why"), [(0, ""), (19, ""), (20, "share"), (200, "share")])
def test_a_late_loop_lowers_the_bound_but_not_for_teams_under_their_share(mine: int, why: Reason) -> None:
    assert refuses(40, 2000, 300, mine, 2, batch=False, batches=0) == why


@pytest.mark.parametrize("most", [1, 2, 5, 9])
def test_a_small_bound_is_used_in_full(most: int) -> None:
    for total in range(most):
        assert refuses(most, most, total, total, 1, batch=False, batches=0) in ("", "full")
    assert refuses(most, most, 0, 0, 1, batch=False, batches=0) == ""


def overload(concurrent: int = 2000, lag_s: float = 0.05) -> LoadShedder:
    return LoadShedder(concurrent=concurrent, lag_s=lag_s)


def filled(subject: LoadShedder, team: str, count: int) -> LoadShedder:
    for _ in range(count):
        subject.enter(team, batch=False)
    return subject


def ticks(subject: LoadShedder, lags_s: Iterable[float]) -> float:
    for lag_s in lags_s:
        subject.tick(lag_s)
    return float(subject.stats()["bound"])


def test_what_enters_and_leaves_is_counted() -> None:
    subject = overload(2)
    subject.enter("a", batch=False)
    subject.enter("b", batch=True)
    with pytest.raises(Overloaded) as caught:
        subject.enter("c", batch=False)
    assert caught.value.retry_after_s is not None
    assert 0.8 <= caught.value.retry_after_s <= 1.4
    with pytest.raises(Overloaded):
        subject.enter("b", batch=True)
    assert subject.stats() == {
        "in_flight": 2, "teams": 2, "bound": 2, "lag_ms": 0.0, "full.interactive": 1, "full.batch": 1,
    }  # fmt: skip
    subject.leave("a", batch=False)
    subject.leave("b", batch=True)
    assert subject.stats()["teams"] == subject.stats()["in_flight"] == 0
    subject.enter("c", batch=False)


def test_one_pause_of_the_loop_is_no_overload() -> None:
    subject = filled(overload(), "a", 500)
    assert ticks(subject, [0.0, 0.15, 0.0, *[0.2] * (LOOKS - 1), 0.0]) == 2000
    assert subject.pause_s(Overloaded("x", retry_after_s=1.0)) == 0.0


def test_while_the_loop_is_late_the_bound_falls_below_what_is_in_progress() -> None:
    subject = filled(overload(), "flood", 500)
    assert ticks(subject, [0.2] * (LOOKS + 1)) < 450
    assert subject.pause_s(Overloaded("x", retry_after_s=1.0)) == 1.0
    assert subject.pause_s(Overloaded("x", retry_after_s=9.0)) == 2.0
    assert subject.pause_s(InvalidKey("x")) == 0.0
    with pytest.raises(Overloaded):
        subject.enter("flood", batch=False)
    subject.enter("polite", batch=False)
    assert subject.stats()["full.interactive"] == 1


def test_a_few_requests_are_not_what_makes_the_loop_late() -> None:
    subject = filled(overload(), "a", 3)
    assert ticks(subject, [1.0] * 100) >= 32


def test_the_bound_comes_back_when_the_loop_keeps_up() -> None:
    subject = filled(overload(), "a", 500)
    low = ticks(subject, [0.2] * 10)
    assert ticks(subject, [0.0] * 5) > low
    assert ticks(subject, [0.0] * 100) == 2000
    assert subject.pause_s(Overloaded("x", retry_after_s=1.0)) == 0.0


def test_streams_that_cost_nothing_do_not_keep_others_out_once_the_loop_keeps_up() -> None:
    subject = filled(overload(), "a", 1000)
    ticks(subject, [0.2] * 20)
    assert ticks(subject, [0.0]) > 1000
    subject.enter("b", batch=False)


def test_the_more_are_refused_the_longer_they_are_asked_to_wait() -> None:
    subject = filled(overload(5), "a", 5)
    for _ in range(10):
        for _ in range(25):
            with pytest.raises(Overloaded):
                subject.enter("a", batch=False)
        for _ in range(5):
            subject.leave("a", batch=False)
        filled(subject, "a", 5)
        subject.tick(0.0)
    with pytest.raises(Overloaded) as caught:
        subject.enter("a", batch=False)
    assert caught.value.retry_after_s is not None
    assert 5 * 0.8 <= caught.value.retry_after_s <= 5 * 1.4


async def test_a_loop_that_is_held_up_is_measured() -> None:
    subject = overload()
    await subject.open()
    try:
        async with asyncio.timeout(30):
            while not float(subject.stats()["lag_ms"]) > 20:
                time.sleep(0.15)  # each look is due in the middle of one
                await asyncio.sleep(0)
        await until(lambda: float(subject.stats()["lag_ms"]) < 20)
    finally:
        await subject.aclose()
