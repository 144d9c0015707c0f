from __future__ import annotations

import math
import random

import pytest

from gateway.cache.quality.error_bound import LEAST, LEVELS, Measured, Tally, beta_cdf, clopper_pearson, level_of


@pytest.mark.parametrize(
    ("a", "b", "x", "known"),
    [
        (1, 1, 0.2, 0.2),
        (2, 1, 0.5, 0.25),
        (0.5, 0.5, 0.5, 0.5),
        (2, 97, 0.02, 0.5857364976),
        (40, 3, 0.9, 0.1951076548),
    ],
)
def test_the_beta_distribution_is_right(a: float, b: float, x: float, known: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(known, abs=1e-9)
    assert (beta_cdf(0.0, a, b), beta_cdf(1.0, a, b)) == (0.0, 1.0)


COLD = 0.98
"""The threshold at 1 % before anything is measured."""


def test_the_interval_is_clopper_and_pearsons() -> None:
    assert clopper_pearson(0, 10, 0.95) == (0.0, pytest.approx(0.30850, abs=1e-4))
    assert clopper_pearson(10, 10, 0.95) == (pytest.approx(0.69150, abs=1e-4), 1.0)
    low, high = clopper_pearson(3, 60, 0.95)
    assert (low, high) == (pytest.approx(0.01043, abs=1e-4), pytest.approx(0.13924, abs=1e-4))


def test_unknown_traffic_is_trusted_as_far_as_the_packaged_verifier_was_measured() -> None:
    tally = Tally()
    assert [tally.level(error) for error in (0.1, 0.01)] == [LEVELS[0], COLD]
    assert tally.level(0.005) > LEVELS[0]
    assert tally.level(0.0001) == math.inf


def test_wrong_hits_raise_the_bar_and_right_ones_lower_it_again() -> None:
    tally = Tally()
    for _ in range(2000):
        for score in (0.75, 1.0, None, None):
            tally.look(score)
    for _ in range(30):
        tally.check(0.75, wrong=True, given=True, share=0.05)
    assert tally.level(0.01) > 0.75
    for _ in range(60_000):
        tally.look(None)
    for _ in range(200):
        tally.look(0.75)
        tally.check(0.75, wrong=False, given=False, share=1.0)
    assert tally.level(0.01) == LEVELS[0]


def test_what_went_wrong_is_made_good() -> None:
    tally = Tally()
    for _ in range(4000):
        tally.look(1.0)
    assert tally.allowed(0.01) == 0.01
    for _ in range(4):
        tally.check(1.0, wrong=True, given=True, share=0.05)
    assert 0.0 < tally.allowed(0.01) < 0.01
    for _ in range(4):
        tally.check(1.0, wrong=True, given=True, share=0.05)
    assert tally.allowed(0.01) == 0.0


def test_hits_that_were_checked_more_often_count_for_less() -> None:
    measured = Measured(lookups=1000, hits=220)
    for number in range(20):
        measured.check(wrong=number < 10, share=1.0)
    for _ in range(10):
        measured.check(wrong=False, share=0.05)
    assert measured.of_hits == pytest.approx(10 / 220)
    assert measured.of_lookups == pytest.approx(0.01)
    low, high = measured.interval()
    assert low < 0.01 < high <= 0.22


def test_the_interval_covers_what_is_true() -> None:
    drawn, covered = random.Random(5), 0
    for _ in range(300):
        measured = Measured()
        for _ in range(1500):
            measured.lookups += 1
            if drawn.random() < 0.3:
                measured.hits += 1
                if drawn.random() < 0.1:
                    measured.check(wrong=drawn.random() < 0.05, share=0.1)
        low, high = measured.interval()
        covered += low <= 0.3 * 0.05 <= high
    assert covered >= 0.93 * 300


def test_every_level_has_its_place() -> None:
    assert [level_of(bar) for bar in LEVELS] == list(range(len(LEVELS)))
    assert list(LEVELS) == sorted(set(LEVELS))
    assert level_of(0.65) == LEVELS.index(0.6)


def test_the_verifier_s_own_bars_are_levels_and_none_is_below_the_first() -> None:
    own = [bar for _, bar in LEAST]
    assert set(own) <= set(LEVELS)
    assert own == sorted(own)
    assert LEVELS[0] == min(own)
    assert Tally().level(max(error for error, _ in LEAST)) == COLD, "a new scope has to show that less is enough"


def test_the_assumed_share_fades_with_the_checks_that_contradict_it() -> None:
    """Checks are forgotten, so the assumption has to be, too."""
    tally, scores = Tally(), (0.65, 0.8, 0.92)
    for number in range(3000):
        score = scores[number // 5 % 3] if number % 5 == 0 else None
        tally.look(score)
        if score is not None:
            tally.check(score, wrong=False, given=False, share=1.0)
    assert tally.level(0.01) <= 0.6


def test_levels_with_most_of_the_look_ups_open_when_hundreds_of_checks_are_right() -> None:
    tally, scores = Tally(), (0.65, 0.8, 0.92)
    for number in range(2000):
        score = scores[number % 3] if number % 10 < 6 else None
        tally.look(score)
        if score is not None:
            tally.check(score, wrong=False, given=False, share=1.0)
    assert tally.level(0.01) <= 0.75
