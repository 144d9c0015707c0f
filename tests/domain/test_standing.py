"""Calibration, detection of a drop, forgetting and recovery, as values in and values out."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from gateway.domain.routing.learned import NOTHING, Learned
from gateway.domain.routing.standing import ALARM, Judged, Watch, shift_of, standing, wilson


def judged(*scores: float, predicted: float = 0.9, target: float = 0.9, weight: float = 1.0) -> list[Judged]:
    return [Judged(number, predicted, target, score, weight) for number, score in enumerate(scores)]


def drawn(chance: random.Random, quality: float, count: int) -> list[float]:
    return [float(chance.random() < quality) for _ in range(count)]


def test_without_evidence_the_prior_stands() -> None:
    assert [NOTHING.adequacy(prior) for prior in (0.0, 0.3, 1.0)] == [0.0, 0.3, 1.0]
    assert NOTHING.quality(0.95) == 0.95
    with pytest.raises(ValueError, match="no judged answers"):
        standing([])


@pytest.mark.parametrize("quality", [0.5, 0.8, 0.97])
def test_with_much_evidence_the_measured_quality_stands(quality: float) -> None:
    rows = judged(*drawn(random.Random(1), quality, 400), target=0.0)
    shift = shift_of(rows, [1.0] * len(rows))
    assert Learned(shift, 400).adequacy(0.9) == pytest.approx(quality, abs=0.05)


def test_a_few_answers_move_the_prior_a_little() -> None:
    one, many = (standing(judged(*[0.0] * count, target=0.0)).learned.adequacy(0.9) for count in (1, 10))
    assert 0.75 < one < 0.9
    assert many < 0.6


def test_an_adequacy_is_traced_back_to_its_prior() -> None:
    learnt = Learned(-0.7, 20)
    assert learnt.prior(learnt.adequacy(0.8)) == pytest.approx(0.8)


def test_equal_by_definition_stays_so_until_evidence_contradicts_it() -> None:
    assert Learned(0.2, 20).adequacy(1.0) == 1.0
    assert Learned(-2.0, 20).adequacy(1.0) < 0.95


@pytest.mark.parametrize(("after", "within"), [(0.0, 6), (0.3, 20), (0.6, 90)])
def test_a_drop_is_noticed_within_so_many_judged_answers(after: float, within: int) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        rows = judged(*drawn(chance, 0.96, 100), *drawn(chance, after, within), predicted=0.95, target=0.95)
        stands = standing(rows)
        assert stands.below
        assert stands.since is not None
        assert 90 < stands.since <= 100 + within
        assert stands.learned.adequacy(0.95) < 0.9


def test_false_alarms_are_as_rare_as_is_promised() -> None:
    """At the very edge of what is tolerated; the promise is one in ALARM answers at most."""
    alarms, answers = 0, 0
    for seed in range(20):
        watch, chance = Watch(), random.Random(seed)
        for number in range(int(ALARM)):
            watch.see(number, Judged(number, 0.9, 0.9, float(chance.random() < 0.87)))
            answers += 1
            if watch.alarm is not None:
                alarms += 1
                break
    assert alarms / answers <= 1 / ALARM


def test_what_lies_before_the_drop_is_forgotten_and_the_margin_fades_with_recovery() -> None:
    rows = judged(*[1.0] * 200, *[0.0] * 12, *[1.0] * 200)
    margins = [standing(rows[:end]).learned.margin for end in range(200, 400, 5)]
    top = margins.index(max(margins))
    assert margins[0] == 0
    assert margins[top] > 0.95
    assert margins[-1] == 0
    later = margins[top:]
    assert later == sorted(later, reverse=True)
    assert any(0.1 < margin < 0.9 for margin in later)
    dropped, recovered = standing(rows[:212]), standing(rows)
    assert dropped.mean < 0.1
    assert recovered.mean > 0.95
    assert not recovered.below


def test_a_single_key_raises_no_alarm() -> None:
    assert not standing(judged(0.0, 0.0, weight=0.25)).below


def test_voices_count_as_far_as_they_differ_from_those_on_the_reference() -> None:
    """People call seven of ten answers good, whoever gave them."""

    def voices(quality: float) -> Sequence[Judged]:
        scores = drawn(random.Random(2), quality, 300)
        return [Judged(number, 0.9, 0.9, score, 0.25, 0.0, baseline=0.7) for number, score in enumerate(scores)]

    assert not standing(voices(0.7)).below
    assert standing(voices(0.7)).mean > 0.9
    assert standing(voices(0.3)).below


def test_wilson_holds_the_mean_and_narrows() -> None:
    few, many = wilson(0.9, 20), wilson(0.9, 2000)
    assert few[0] < many[0] < 0.9 < many[1] < few[1] <= 1
    assert wilson(1.0, 10)[1] == pytest.approx(1)
    assert wilson(0.0, 10)[0] == pytest.approx(0)
