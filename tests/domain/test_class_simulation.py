"""How fast a traffic class opens and closes, and what that costs, over seeded runs."""

from __future__ import annotations

from statistics import fmean, median

from tests.domain.class_simulation import Setting, runs

SEEDS = range(12)


def test_a_class_that_is_served_as_well_opens_soon_and_pays_for_its_comparisons() -> None:
    found = runs(Setting(), SEEDS)
    assert median(one.opened or 10_000 for one in found) <= 600
    assert median(one.spent / one.saved for one in found) <= 0.1
    assert sum(one.closings for one in found) == 0


def test_a_judge_that_is_wrong_at_times_slows_the_opening_down() -> None:
    found = runs(Setting(judge=0.05, learning=1.0), SEEDS)
    assert median(one.opened or 10_000 for one in found) <= 1500
    assert median(one.spent / one.saved for one in found) <= 0.1


def test_a_drop_by_half_closes_the_class_after_a_few_wrong_answers() -> None:
    setting = Setting(judge=0.05, drop=0.5, requests=40_000)
    found = [one for one in runs(setting, SEEDS) if one.closed_after_drop]
    assert len(found) >= 10
    assert median(one.compared for one in found) <= 8
    assert median(one.served for one in found) <= 150


def test_answers_that_look_weak_close_it_sooner() -> None:
    setting = Setting(judge=0.05, drop=0.5, requests=40_000, weak=1.0)
    found = [one for one in runs(setting, SEEDS) if one.closed_after_drop]
    assert median(one.served for one in found) <= 25


def test_hardly_any_request_goes_to_a_backend_that_is_worse_by_ten_points() -> None:
    for judge in (0.0, 0.05):
        found = runs(Setting(right=0.9, judge=judge), SEEDS)
        assert fmean(one.to_cheaper for one in found) <= 200
