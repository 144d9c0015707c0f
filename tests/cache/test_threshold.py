from __future__ import annotations

import math
import random

import pytest

from gateway.cache.quality.answer_judge import Judgement
from gateway.cache.quality.error_bound import LEVELS
from gateway.cache.quality.threshold import Thresholds

S = "team/acme/search"
COLD = 0.98
"""The threshold at 1 % before anything is measured."""


def trust(share: float = 0.05, now: list[float] | None = None) -> Thresholds:
    clock = now or [0.0]
    return Thresholds(share=share, clock=lambda: clock[0], draw=random.Random(3).random)


def look(trust: Thresholds, times: int, score: float | None = None, *, cpu_s: float = 0.0, name: str = S) -> None:
    for _ in range(times):
        trust.looked(name, score, hit=score is not None, cpu_s=cpu_s)


def test_a_new_scope_begins_above_the_verifier_s_own_threshold_and_comes_down_to_it() -> None:
    assert trust().bar(S, 0.01) == COLD
    assert trust().bar(S, 0.0) < 1.0, "strict: the verifier itself allows only what is harmless"
    repeating = trust()
    look(repeating, 5000, 1.0)
    assert repeating.bar(S, 0.01) < COLD, "where all is asked again the rules are trusted too"


def test_hits_found_wrong_raise_the_bar_of_their_scope_alone() -> None:
    made = trust()
    look(made, 1000, 0.9)
    for _ in range(20):
        made.checked(S, 0.9, Judgement.WRONG, probability=0.05)
    assert made.bar(S, 0.01) > 0.9
    assert made.bar("team/acme/other", 0.01) == COLD
    assert made.report()[0]["bars"] == {"0.01": None}, "nothing is sure enough"


def test_what_people_call_wrong_teaches_all_workers() -> None:
    one, two = trust(), trust()
    for made in (one, two):
        look(made, 900, None)
        look(made, 100, 0.9)
    assert one.bar(S, 0.05) == two.bar(S, 0.05) <= 0.9
    for number in range(10):
        one.called_wrong(S, 0.9, f"key {number}")
    assert one.bar(S, 0.05) > 0.9
    news = one.news()
    assert news is not None
    two.add_report(news)
    assert two.bar(S, 0.05) == one.bar(S, 0.05)
    assert one.report()[0]["checked"] == 0, "no fair sample, so no part of what is measured"


def test_one_voice_teaches_a_little_and_repeating_it_nothing_more() -> None:
    made, other = trust(), trust()
    for each in (made, other):
        look(each, 900, None)
        look(each, 100, 0.9)
        for _ in range(40):
            each.missed(S, 0.75, Judgement.RIGHT, accepted=True)
    before = made.bar(S, 0.05)
    for _ in range(2):
        made.called_wrong(S, 0.9, "angry")
    believed = made.bar(S, 0.05)
    assert before < believed <= LEVELS[-1]
    for _ in range(500):
        made.called_wrong(S, 0.9, "angry")
    assert made.bar(S, 0.05) == believed
    news = made.news()
    assert news is not None
    assert len(news.checks) == 2
    other.add_report(news)
    for _ in range(500):  # the same key at another worker
        other.called_wrong(S, 0.9, "angry")
    assert other.bar(S, 0.05) == believed
    look(made, 4000, None)
    made.called_wrong(S, 0.9, "angry")
    told = made.news()
    assert told is not None
    assert len(told.checks) == 1, "after so many look-ups it is heard again"


def test_a_voice_has_more_hits_compared() -> None:
    made = trust()
    while made._scope(S).credit >= 1:
        if made.draw(S):
            made.checked(S, 1.0, Judgement.RIGHT, probability=0.3)
    credit = made._scope(S).credit
    made.called_wrong(S, 0.9, "key")
    assert made._scope(S).credit > credit + 1


def test_misses_open_what_was_barred() -> None:
    made = trust()
    look(made, 3000, 0.75)
    for _ in range(20):
        made.checked(S, 0.75, Judgement.WRONG, probability=0.2)
    barred = made.bar(S, 0.01)
    assert barred > 0.75
    for _ in range(60_000):
        made.looked(S, None, hit=False)
    for _ in range(100):
        made.looked(S, 0.75, hit=False)
        made.missed(S, 0.75, Judgement.RIGHT, accepted=True)
    assert made.bar(S, 0.01) == LEVELS[0]
    assert made.report()[0]["near"] == {"right": 100, "wrong": 0, "undecided": 0}


def test_what_the_verifier_itself_refused_is_told_but_lowers_no_bar() -> None:
    made = trust()
    look(made, 1000, 0.75)
    before = made.bar(S, 0.01)
    for _ in range(50):
        made.missed(S, 0.65, Judgement.WRONG, accepted=False)
    assert made.bar(S, 0.01) == before
    assert made.stats()["near_misses_wrong"] == 50


def test_undecided_comparisons_count_neither_way() -> None:
    made = trust()
    look(made, 1000, 0.9)
    for _ in range(50):
        made.checked(S, 0.9, Judgement.UNDECIDED, probability=0.05)
    untouched = trust()
    look(untouched, 1000, 0.9)
    assert made.bar(S, 0.01) == untouched.bar(S, 0.01)
    told = made.report()[0]
    assert (told["checked"], told["undecided"], told["wrong_of_lookups"]) == (0, 50, None)


def test_a_share_of_hits_is_checked_more_of_them_at_first() -> None:
    made, drawn = trust(), []
    for number in range(20_000):
        probability = made.draw(S)
        drawn += [number] * (probability > 0)
        if probability:
            made.checked(S, 1.0, Judgement.RIGHT, probability=probability)
        made.looked(S, 1.0, hit=True)
    assert sum(number < 200 for number in drawn) >= 25
    assert 0.04 * 20_000 <= len(drawn) <= 0.056 * 20_000
    assert trust(share=0.0).draw(S) == 0.0


def test_the_measured_share_is_told_with_its_interval() -> None:
    made = trust()
    look(made, 300, None)
    look(made, 100, 1.0)
    for number in range(20):
        made.checked(S, 1.0, Judgement.WRONG if number == 0 else Judgement.RIGHT, probability=0.2)
    stats = made.stats()
    assert stats["false_hits_estimated"] == pytest.approx(100 / 20)
    assert 0 < float(stats["false_hits_at_least"]) < 5 < float(stats["false_hits_at_most"]) < 100
    told = made.report()[0]
    assert told["wrong_of_lookups"] == pytest.approx(0.0125)
    assert told["wrong_of_hits"] == pytest.approx(0.05)
    assert (stats["hits_checked"], stats["hits_checked_wrong"]) == (20, 1)


def test_looking_rests_where_it_costs_more_than_it_saves_ever_longer() -> None:
    now = [0.0]
    made = trust(now=now)
    look(made, 1000, None, cpu_s=0.01)
    assert not made.pays(S)
    assert made.pays("team/acme/other")
    now[0] = 900.0
    assert made.pays(S)
    look(made, 1000, None, cpu_s=0.01)
    now[0] = 1800.0
    assert not made.pays(S)
    now[0] = 2700.0
    assert made.pays(S)
    look(made, 999, None, cpu_s=0.01)
    made.saved(S, 10**12)
    look(made, 1, None, cpu_s=0.01)
    assert made.pays(S)
    assert made.stats()["scopes_switched_off"] == 2


def test_checks_count_as_cost_and_hits_without_a_price_keep_it_on() -> None:
    made = trust()
    made.saved(S, 10**9)
    made.checked(S, 1.0, Judgement.RIGHT, probability=1.0, cost_pico=10**10)
    look(made, 1000)
    assert not made.pays(S)
    other = trust()
    other.saved(S, None)
    look(other, 1000, cpu_s=1.0)
    assert other.pays(S)


def test_the_bar_is_infinite_when_nothing_is_sure() -> None:
    made = trust()
    look(made, 2000, 1.0)
    for _ in range(40):
        made.checked(S, 1.0, Judgement.WRONG, probability=0.05)
    assert made.bar(S, 0.01) == math.inf


def test_workers_learn_of_each_others_checks_and_add_up_what_they_measured() -> None:
    one, two = trust(), trust()
    for made in (one, two):
        look(made, 1000, 0.9)
    assert one.news() is None, "nothing was checked"
    for _ in range(20):
        one.checked(S, 0.9, Judgement.WRONG, probability=0.05)
    news = one.news()
    assert news is not None
    assert one.news() is None
    before = two.bar(S, 0.01)
    two.add_report(news)
    one.add_report(news)
    assert two.bar(S, 0.01) > before
    assert [(told["lookups"], told["checked"]) for told in two.report()] == [(2000, 20)]
    assert [(told["lookups"], told["checked"]) for told in one.report()] == [(1000, 20)], "its own news is none"
    one.checked(S, 0.9, Judgement.RIGHT, probability=0.05)
    later = one.news()
    assert later is not None
    two.add_report(later)
    assert two.report()[0]["checked"] == 21, "totals replace those told before"
    two.forget()
    assert two.report()[0]["checked"] == 0
    assert two.stats()["hits_checked"] == 0, "each worker counts its own for the metrics"


def test_news_of_a_scope_that_is_not_known_here_begin_it() -> None:
    one, reader = trust(), trust(share=0.0)
    look(one, 100, 1.0)
    one.checked(S, 1.0, Judgement.RIGHT, probability=0.3)
    news = one.news()
    assert news is not None
    reader.add_report(news)
    told = reader.report()[0]
    assert (told["scope"], told["hits"], told["checked"]) == (S, 100, 1)


def test_a_kind_of_question_that_costs_more_than_it_saves_rests_alone() -> None:
    made = trust()
    for _ in range(1000):
        made.looked(S, 0.9, hit=True, kind="en/text/opening")
        made.saved(S, 10**9, "en/text/opening")
        made.looked(S, None, hit=False, kind="es/text/opening")
    made.checked(S, 0.9, Judgement.WRONG, probability=1.0, cost_pico=10**10, kind="es/text/opening")
    for _ in range(1000):
        made.looked(S, None, hit=False, kind="es/text/opening")
        made.saved(S, 10**9, "en/text/opening")
    assert not made.pays(S, "es/text/opening")
    assert made.pays(S, "en/text/opening")
    assert made.pays(S)
    assert made.pays("team/acme/other", "es/text/opening")
    kinds = made.report()[0]["kinds"]
    assert (kinds["es/text/opening"]["rests"], kinds["en/text/opening"]["rests"]) == (True, False)


def test_the_kinds_of_question_add_up_over_workers_and_count_once_in_their_scope() -> None:
    one, two = trust(), trust()
    for made in (one, two):
        for kind in ("en/text/opening", "pt/text/follow_up"):
            made.looked(S, 0.9, hit=True, kind=kind)
    one.checked(S, 0.9, Judgement.WRONG, probability=0.5, kind="pt/text/follow_up")
    one.checked(S, 0.9, Judgement.UNDECIDED, probability=0.5, kind="pt/text/follow_up")
    news = one.news()
    assert news is not None
    two.add_report(news)
    (found,) = two.report()
    assert (found["lookups"], found["hits"], found["checked"]) == (4, 4, 1)
    figures = {kind: (each["lookups"], each["wrong"], each["undecided"]) for kind, each in found["kinds"].items()}
    assert figures == {"en/text/opening": (2, 0, 0), "pt/text/follow_up": (2, 1, 1)}
    reader = trust()
    reader.add_report(news)
    assert reader.report()[0]["kinds"]["pt/text/follow_up"]["hits"] == 1, "a process without look-ups of its own"
