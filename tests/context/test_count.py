from __future__ import annotations

import pytest

from gateway.context.count import Counter, encoding_of, family_factor


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4", "cl100k_base"),
        ("gpt-4-0613", "cl100k_base"),
        ("openai/gpt-3.5-turbo", "cl100k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("qwen2.5-7b-instruct-awq", "o200k_base"),
    ],
)
def test_the_vocabulary_follows_from_the_models_name(model: str, encoding: str) -> None:
    assert encoding_of(model) == encoding


def test_other_families_need_more_tokens_and_unknown_ones_are_taken_as_they_are() -> None:
    assert family_factor("claude-sonnet-4-5") > 1
    assert family_factor("SmolLM2-135M-Instruct") > 1
    assert family_factor("gpt-4o") == family_factor("house-model") == 1.0


async def test_counting_begins_with_loading_off_the_loop_and_is_exact_then() -> None:
    counter = Counter()
    assert not counter.ready("cl100k_base")
    assert await counter.counts(["hello world", "", "hello"], "cl100k_base") == [2, 0, 1]
    assert counter.ready("cl100k_base")


async def test_long_text_is_counted_in_a_thread(counter: Counter) -> None:
    text = "one two three four " * 5000
    assert await counter.counts([text]) == [counter.count(text)]


def test_who_cannot_wait_gets_the_exact_count_only_when_it_takes_no_time(counter: Counter) -> None:
    assert counter.at_once("hello world") == 2
    long = "one two three four " * 5000
    assert counter.at_once(long) == counter.estimate(long)
    assert Counter().at_once("hello world") == Counter().estimate("hello world")
