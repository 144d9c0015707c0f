"""The sequential tests that open and close a traffic class."""

from __future__ import annotations

import orjson
import pytest

from gateway.domain.routing.class_trial import (
    LEAST_SERVED,
    MOST_COMPARED,
    REFUSED_SHARE,
    SHARES,
    SUSPECTED,
    WATCHED,
    ClassTrial,
    Comparison,
)


def opened(target: float = 0.95) -> ClassTrial:
    """A class that is open for all sessions."""
    trial = ClassTrial(target)
    for _ in range(1000):
        if trial.share == 1:
            return trial
        trial.see(Comparison(1.0, served=trial.stage > 0))
    raise AssertionError(trial)


def test_a_class_opens_in_steps_and_each_step_needs_served_answers() -> None:
    trial, shares = ClassTrial(0.95), []
    for _ in range(500):
        trial.see(Comparison(1.0, served=False))
        shares.append(trial.share)
    assert set(shares) == {0.0, SHARES[1]}
    assert 20 < shares.index(SHARES[1]) < 60
    for stage in (2, 3):
        for _ in range(LEAST_SERVED):
            assert trial.stage == stage - 1
            trial.see(Comparison(1.0, served=True))
        assert trial.stage == stage
    assert "1.00 as good over" in trial.why


def test_an_opened_class_closes_after_a_few_wrong_answers_and_begins_a_stricter_attempt() -> None:
    trial = opened()
    first = trial.compared
    changes = [trial.see(Comparison(0.0, served=True)) for _ in range(6)]
    assert "closed" in changes[:5]
    assert (trial.share, trial.attempt > 0) == (0.0, True)
    assert trial.why.startswith(("closed: ", "refused: "))
    again = opened()
    again.attempt = 1
    fresh = ClassTrial(0.95, attempt=1)
    while fresh.stage < 1:
        fresh.see(Comparison(1.0, served=False))
    assert fresh.compared > 25
    assert first > 0


def test_weak_answers_that_are_confirmed_to_be_worse_close_a_class_sooner_than_drawn_comparisons_do() -> None:
    trial, seen = opened(), 0
    while trial.share:
        trial.see(Comparison(0.0, served=True, weak=True, drawn=False))
        seen += 1
    assert seen <= 4
    assert "look weak" in trial.why


def test_weak_answers_that_are_as_good_as_the_reference_close_nothing() -> None:
    trial = opened()
    for _ in range(1000):
        trial.see(Comparison(1.0, served=True, weak=True, drawn=False))
    assert trial.share == 1


def test_rare_weak_answers_among_many_sound_ones_close_nothing() -> None:
    trial = opened()
    for _ in range(200):
        trial.see(Comparison(0.0, served=True, weak=True, drawn=False, sound=99))
    assert trial.share == 1


def test_a_class_that_is_worse_by_ten_points_is_refused_and_then_hardly_compared() -> None:
    trial, number = ClassTrial(0.95), 0
    while not trial.waiting:
        number += 1
        trial.see(Comparison(float(number % 6 > 0), served=False))  # 0.83
        assert trial.share == 0
    assert number < 300
    assert trial.compare_share(0.5, served=False) == REFUSED_SHARE


def test_an_undecided_attempt_ends() -> None:
    trial = ClassTrial(0.95)
    for number in range(MOST_COMPARED):
        trial.see(Comparison(float(number * 8 % 100 >= 8), served=False))  # at the boundary, .92
    assert (trial.attempt, trial.waiting) == (1, True)
    assert "nothing is certain" in trial.why


def test_a_class_in_which_most_comparisons_have_no_verdict_stays_closed() -> None:
    trial = ClassTrial(0.95)
    for _ in range(300):
        trial.see(Comparison(None, served=False))
        trial.see(Comparison(None, served=False))
        trial.see(Comparison(1.0, served=False))
    assert trial.share == 0


def test_an_open_class_is_compared_rarely_and_more_often_after_a_wrong_answer() -> None:
    trial = opened()
    assert trial.compare_share(0.5, served=True) == WATCHED
    trial.see(Comparison(0.0, served=True))
    assert trial.compare_share(0.5, served=True) == SUSPECTED
    for _ in range(6):
        trial.see(Comparison(1.0, served=True))
    assert trial.compare_share(0.5, served=True) == WATCHED


def test_while_a_class_is_partly_open_every_served_answer_is_compared() -> None:
    trial = ClassTrial(0.95, stage=1)
    assert trial.compare_share(0.3, served=True) == 1
    assert trial.compare_share(0.3, served=False) == 0.3


@pytest.mark.parametrize("target", [0.0, 0.02, 0.5, 0.999, 1.0])
def test_any_quality_can_be_required(target: float) -> None:
    trial = ClassTrial(target)
    for number in range(3000):
        trial.see(Comparison(float(number % 3 > 0), served=True))
    assert min(*trial.up, *trial.down, *trial.weak) > 0


def test_the_state_survives_storage_however_long_the_class_is_open() -> None:
    trial = opened()
    for _ in range(20_000):
        trial.see(Comparison(1.0, served=True))
    assert ClassTrial.of(orjson.loads(orjson.dumps(trial.values()))) == trial


def test_an_open_class_that_becomes_a_little_worse_is_closed_in_the_end() -> None:
    trial = opened()
    for number in range(1, 1500):
        if trial.see(Comparison(float(number % 10 > 0), served=True)):  # 0.90
            break
    assert trial.share == 0
    assert number > 20


def test_an_open_class_at_which_one_verdict_in_twenty_is_wrong_stays_open() -> None:
    trial = opened()
    for number in range(1, 4000):
        trial.see(Comparison(float(number % 20 > 0), served=True))
    assert trial.share == 1
