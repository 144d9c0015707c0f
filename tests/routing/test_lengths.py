from __future__ import annotations

from gateway.domain.money.usage import Usage
from gateway.domain.record import Record
from gateway.routing.lengths import MOST_KEYS, MOST_TOKENS, PRIOR_TOKENS, OutputLengths
from tests.routing.conftest import LARGE, record, request


def _answered(tokens: int, model: str = "auto", outcome: str = "ok") -> Record:
    seen = record(request(model=model))
    attempt = seen.attempt(LARGE)
    attempt.usage = Usage(10, output_tokens=tokens)
    attempt.outcome = outcome  # type: ignore[assignment]
    return seen


def test_before_anything_is_known_a_middling_answer_is_expected() -> None:
    assert OutputLengths().expected("search", "auto", None) == PRIOR_TOKENS


def test_the_requests_own_limit_is_never_exceeded() -> None:
    assert OutputLengths().expected("search", "auto", 16) == 16


def test_it_follows_what_answers_really_took() -> None:
    lengths = OutputLengths()
    for _ in range(60):
        lengths.learn(_answered(40))
    assert 40 <= lengths.expected("search", "auto", None) < 55
    for _ in range(60):
        lengths.learn(_answered(900))
    assert lengths.expected("search", "auto", None) > 800


def test_models_and_teams_are_learned_apart() -> None:
    lengths = OutputLengths()
    lengths.learn(_answered(4000, model="essay"))
    assert lengths.expected("search", "essay", None) > PRIOR_TOKENS
    assert lengths.expected("search", "auto", None) == PRIOR_TOKENS
    assert lengths.expected("other", "essay", None) == PRIOR_TOKENS


def test_answers_that_did_not_end_teach_nothing() -> None:
    lengths = OutputLengths()
    lengths.learn(_answered(1, outcome="interrupted"))
    lengths.learn(record(request()))
    assert len(lengths) == 0


def test_memory_is_bounded() -> None:
    lengths = OutputLengths()
    for number in range(MOST_KEYS + 10):
        lengths.learn(_answered(5, model=f"m{number}"))
    assert len(lengths) == MOST_KEYS
    assert lengths.expected("search", "m0", None) == PRIOR_TOKENS


def test_an_endless_answer_counts_for_a_few_times_the_usual_length_and_is_forgotten() -> None:
    lengths = OutputLengths()
    for _ in range(30):
        lengths.learn(_answered(100))
    lengths.learn(_answered(50_000_000))
    assert lengths.expected("search", "auto", None) < 300
    for _ in range(60):
        lengths.learn(_answered(100))
    assert lengths.expected("search", "auto", None) < 120


def test_no_answer_counts_for_more_than_its_backend_can_write() -> None:
    lengths = OutputLengths()
    for _ in range(200):
        lengths.learn(_answered(50_000_000))
    assert lengths.expected("search", "auto", None) <= (LARGE.max_output_tokens or LARGE.window_tokens or MOST_TOKENS)
