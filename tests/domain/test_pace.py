"""What the bill of an answer that ended early is estimated from: rates of what is not seen, and wire format."""

from __future__ import annotations

import pytest

from gateway.domain.money.pace import FIRST_FRAME_BYTES, Pace, streamed_tokens


def test_nothing_is_made_up_before_a_rate_is_known() -> None:
    pace = Pace(hides=True)
    assert (pace.tokens(10), pace.most_per_second) == (0, 0.0)


def test_a_rate_is_learned_and_most_rates_are_below_the_highest_likely_one() -> None:
    pace = Pace(hides=True)
    for number in range(200):
        pace.learn(1000 if number % 2 else 600, 10.0)
    assert 65 <= pace.tokens_per_second <= 95
    assert pace.most_per_second >= 100
    assert pace.tokens(2.0) == int(2 * pace.tokens_per_second)
    assert pace.tokens(-1.0) == 0


def test_a_handful_of_unseen_tokens_teaches_no_rate() -> None:
    """Before a stream's text: 9 tokens that the estimate lacked, in 2 ms, are no backend of 4,500 tokens a second."""
    pace = Pace(hides=True)
    pace.learn(9, 0.002)
    assert pace.most_per_second == 0
    pace.learn(300, 3.0)
    pace.learn(9, 0.002)
    assert pace.tokens_per_second == 100


def test_one_plain_answer_in_sixteen_is_learned_from_once_the_rate_is_known() -> None:
    pace = Pace(plain=True)
    pace.learn(100, 1.0)
    assert pace.rest == 0
    pace.learn(100, 1.0)
    assert pace.rest == 15


@pytest.mark.parametrize("per_event", [1, 5, 20])
@pytest.mark.parametrize("frame_bytes", [119, 215, 320])
def test_tokens_of_a_cut_stream_are_counted_by_the_wire_format_of_whole_ones(per_event: int, frame_bytes: int) -> None:
    pace = Pace(hides=True)
    for events in (20, 30, 40):
        pace.learn_frame(events * per_event, 0, events, (events + 3) * frame_bytes + events * per_event * 4)
    cut = (10 + 3) * frame_bytes + 10 * per_event * 4
    assert streamed_tokens(10, cut, pace.frame_bytes) == pytest.approx(10 * per_event, abs=1)


def test_reasoning_that_comes_in_no_event_is_not_taken_for_text() -> None:
    pace = Pace(hides=True)
    pace.learn_frame(5000 + 40, 5000, 40, 43 * 215 + 40 * 4)
    assert pace.frame_bytes == pytest.approx(215)


def test_numbers_that_cannot_be_change_nothing() -> None:
    pace = Pace(hides=True)
    pace.learn_frame(10**6, 0, 1, 300)
    pace.learn_frame(0, 0, 0, 300)
    assert pace.frame_bytes == FIRST_FRAME_BYTES


def test_a_stream_under_way_tells_what_an_event_has_beside_its_text() -> None:
    pace = Pace()
    assert not pace.wants_look(0)
    pace.look(3 * 20, 3, 3 * 220)
    assert pace.frame_bytes == FIRST_FRAME_BYTES  # too few
    pace.look(8 * 20, 8, 8 * 220)
    assert pace.frame_bytes == 200
    assert not pace.wants_look(8)
    assert pace.wants_look(9)
    pace.look(6 * 20, 6, 6 * 400)  # another stream, which tells less
    assert pace.frame_bytes == 200
    pace.learn_frame(100, 0, 100, 103 * 150 + 400)
    assert pace.frame_bytes == 150
    assert not pace.wants_look(1000)
