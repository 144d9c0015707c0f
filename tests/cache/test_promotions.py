from __future__ import annotations

import math

from gateway.cache.quality.promotions import Promotions

S, A = "team/o/t", b"a"


def test_only_a_confirmed_answer_is_promoted_down_to_the_score_that_was_confirmed() -> None:
    made = Promotions()
    assert not made.promoted(S, A, 0.9, 0.01)
    made.judged(S, (A,), 0.7, right=True)
    assert made.promoted(S, A, 0.7, 0.01)
    assert not made.promoted(S, A, 0.69, 0.01)
    assert not made.promoted("team/o/other", A, 0.9, 0.01)


def test_a_different_answer_to_a_near_miss_ends_the_promotion() -> None:
    made = Promotions()
    made.judged(S, (A,), 0.7, right=True)
    made.judged(S, (A,), 0.8, right=False)
    assert not made.promoted(S, A, 0.9, 0.01)


def test_promoted_hits_stay_within_half_of_the_error_that_is_allowed() -> None:
    made = Promotions()
    made.judged(S, (A,), 0.7, right=True)
    for _ in range(2000):
        made.looked(S)
        if made.promoted(S, A, 0.8, 0.01):
            made.gave(S)
    expected = 0.3 + math.sqrt(0.3 * 0.7 / 11)
    assert made.hits == int(0.005 * 2400 / expected), "before any check, three tenths and a deviation count as wrong"
    for _ in range(40):
        made.checked(S, A, wrong=False)
    assert made.promoted(S, A, 0.8, 0.01), "checks that find them right allow more"
    made.checked(S, A, wrong=True)
    assert not made.promoted(S, A, 0.8, 0.01)
    assert not made.promoted(S, A, 0.8, 0.0)


def test_a_promoted_answer_that_only_the_limit_refused_is_checked_by_the_fresh_answer() -> None:
    made = Promotions()
    made.judged(S, (A,), 0.7, right=True)
    while made.promoted(S, A, 0.8, 0.01):
        made.gave(S)
    for _ in range(10):
        made.judged(S, (A, b"fresh"), 0.8, right=True)
    assert made.promoted(S, A, 0.8, 0.01), "ten right answers lower the share that is expected to be wrong"
    for _ in range(50):
        made.judged(S, (b"other",), 0.8, right=False)
    assert made.promoted(S, A, 0.8, 0.01), "a comparison with an answer that was not promoted is no check"
    for number in range(20):
        name = b"wrong %d" % number
        made.judged(S, (name,), 0.7, right=True)
        made.judged(S, (name,), 0.8, right=False)
    assert not made.promoted(S, A, 0.8, 0.01)


def test_it_forgets_the_oldest_answers_and_scopes() -> None:
    made = Promotions()
    for number in range(16_385):
        made.judged(S, (number.to_bytes(4, "big"),), 0.7, right=True)
    assert not made.promoted(S, (0).to_bytes(4, "big"), 0.9, 0.01)
    assert made.promoted(S, (1).to_bytes(4, "big"), 0.9, 0.01)
