from __future__ import annotations

from gateway.admission.output_forecast import FIRST_OUTPUT_TOKENS, OutputForecasts
from gateway.domain.money.usage import Usage


def test_the_first_guess_is_512_tokens() -> None:
    assert OutputForecasts().of("search", "small").output_tokens == FIRST_OUTPUT_TOKENS == 512


def test_long_answers_lift_the_expectation_at_once_and_short_ones_lower_it_slowly() -> None:
    known = OutputForecasts()
    known.of("search", "small").learn_output(Usage(100, output_tokens=3000), 1)
    assert known.of("search", "small").output_tokens == 3000
    other = OutputForecasts()
    for _ in range(60):
        other.of("search", "small").learn_output(Usage(100, output_tokens=40), 1)
    assert other.of("search", "small").output_tokens == 40
    assert other.of("search", "large").output_tokens == 512


def test_what_was_long_ago_is_forgotten() -> None:
    known = OutputForecasts()
    for tokens in [3000] * 40 + [50] * 130:
        known.of("search", "small").learn_output(Usage(100, output_tokens=tokens), 1)
    assert known.of("search", "small").output_tokens == 50


def test_a_backend_that_counts_more_input_is_expected_to_do_so_again() -> None:
    known = OutputForecasts()
    assert known.of("search", "small").input_tokens(100) >= 125
    for _ in range(80):
        known.of("search", "small").learn_input(100, Usage(300, output_tokens=5))
    assert known.of("search", "small").input_tokens(100) >= 300


def test_tokens_of_several_answers_are_shared_among_them() -> None:
    known = OutputForecasts()
    for _ in range(60):
        known.of("search", "small").learn_output(Usage(100, output_tokens=400), 4)
    assert known.of("search", "small").output_tokens == 100


def test_a_little_that_is_attached_does_not_make_text_cheaper() -> None:
    known = OutputForecasts().of("search", "small")
    for _ in range(80):
        known.learn_input(100, Usage(300, output_tokens=5))
    assert known.input_tokens(1010, "document", attached=10) >= 3010


def test_input_that_a_backend_left_out_does_not_make_that_of_others_cheaper() -> None:
    known = OutputForecasts().of("search", "small")
    for _ in range(200):
        known.learn_input(20_000, Usage(10, output_tokens=5))
    assert known.input_tokens(20_000) >= 20_000


def test_what_was_usual_is_the_median_within_limits_and_only_of_that_size() -> None:
    known = OutputForecasts().of("search", "small")
    for tokens in (160, 160, 160, 160, 160, 400, 400):
        known.learn_input(100, Usage(tokens, output_tokens=5))
    assert known.usual_input_tokens(100, 0) == 160 + 25
    assert known.usual_input_tokens(10_000, 0) == 12_500 + 25
    for _ in range(100):
        known.learn_input(10_000, Usage(35_000, output_tokens=5))
    assert known.usual_input_tokens(10_000, 0) == 20_000 + 25
    assert known.input_tokens(10_000) == 35_000 + 25
