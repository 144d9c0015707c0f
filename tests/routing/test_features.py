from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.difficulty.features import BINS, COUNTS, HALF, VOCABULARY_BITS, WORD_BITS, extract, normalise


def test_case_and_white_space_do_not_count() -> None:
    one, other = extract("What is   the CAPITAL\n\tof France? "), extract("what is the capital of france?")
    assert np.array_equal(one.bins, other.bins)
    assert np.array_equal(one.counts, other.counts)
    assert np.array_equal(one.lexical, other.lexical)


def test_width_and_composition_of_letters_do_not_count() -> None:
    assert normalise("cafe\u0301 \uff21") == normalise("café A")


def test_numbers_of_the_same_shape_share_their_ngrams() -> None:
    assert np.array_equal(extract("add 17 and 25").bins, extract("add 48 and 90").bins)


def test_bins_are_ascending_distinct_and_in_their_block() -> None:
    found = extract("the cat sat on the mat because the mat was warm")
    assert np.all(np.diff(found.bins) > 0)
    assert found.bins[found.word_bins - 1] < 1 << WORD_BITS <= found.bins[found.word_bins]
    assert found.bins[-1] < BINS


def test_repeated_words_count_with_their_logarithm() -> None:
    once, twice = extract("warm"), extract("warm warm")
    shared = np.isin(twice.bins, once.bins)
    assert np.allclose(once.counts, np.log1p(1))
    assert np.allclose(twice.counts[shared], np.log1p(2))


def test_of_a_long_text_both_ends_are_read() -> None:
    start, end = "alpha " * HALF, " omega" * HALF
    assert len(normalise(start + end)) <= 2 * HALF + 1
    assert set(extract("alpha omega").vocabulary.tolist()) <= set(extract(start + end).vocabulary.tolist())


def test_lettered_options_are_counted_in_order_only() -> None:
    options = extract("Which one? A. red B. green C. blue D. none").lexical[1]
    assert (options, extract("See plan B. and also C. please").lexical[1]) == (4, 0)


def test_short_words_stand_for_the_vocabulary_only_when_there_are_no_longer_ones() -> None:
    assert len(extract("who is he").vocabulary) == 3
    assert len(extract("who is president").vocabulary) == 1
    assert len(extract("12 * 7 =").vocabulary) == 0


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text_has_finite_features(text: str) -> None:
    found = extract(text)
    assert np.isfinite(found.lexical).all()
    assert len(found.lexical) > COUNTS
    assert len(found.bins) == len(found.counts)
    assert not len(found.vocabulary) or 0 <= found.vocabulary.min() <= found.vocabulary.max() < 1 << VOCABULARY_BITS


def test_lone_surrogates_are_read_as_something() -> None:
    assert len(extract("broken \ud800 text").bins)
