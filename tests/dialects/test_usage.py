"""What backends say they used."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.answers.usage import _Reading, any_usage, later, openai_usage
from gateway.domain.money.usage import Usage
from tests.dialects.samples import steady

NUMBERS = st.integers(0, 200) | st.sampled_from([None, -1, 3.0, 1.5, float("nan"), True, "7", 10**9, 10**30, [1]])


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(input_tokens=9, output_tokens=2)),
        ({"prompt_tokens": 9.0, "completion_tokens": 2.0}, Usage(input_tokens=9, output_tokens=2)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 30, "audio_tokens": 5},
            },
            Usage(33, cached_tokens=64, output_tokens=15, reasoning_tokens=30, audio_tokens=5, audio_input_tokens=3),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None},
            Usage(input_tokens=9, output_tokens=2),
        ),
        (
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(input_tokens=32, output_tokens=9, reasoning_tokens=94),
        ),
        ({"prompt_tokens": 7, "total_tokens": 7}, Usage(input_tokens=7)),
        (
            {
                "prompt_tokens": 2600,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 400},
            },
            Usage(input_tokens=200, cached_tokens=2000, cache_write_5m_tokens=400, output_tokens=1),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": 400}},
            Usage(input_tokens=9, cache_write_5m_tokens=400, output_tokens=1),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "prompt_tokens_details": {"cached_tokens": 20, "audio_tokens": 30, "image_tokens": 10},
                "completion_tokens_details": {"image_tokens": 40},
            },
            Usage(40, 20, output_tokens=10, audio_input_tokens=30, image_input_tokens=10, image_tokens=40),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 90, "audio_tokens": 80},
            },
            Usage(10, 90, output_tokens=1),
        ),
    ],
)
def test_classes_do_not_overlap(said: dict[str, Any], read: Usage) -> None:
    assert openai_usage(said) == read


@pytest.mark.parametrize(
    ("said", "read"),
    [
        # Google's OpenAI endpoint counts thoughts in the total alone
        (
            {"prompt_tokens": 20, "completion_tokens": 151, "total_tokens": 553},
            Usage(20, output_tokens=151, reasoning_tokens=382),
        ),
        ({"prompt_tokens": 20, "total_tokens": 420}, Usage(20, reasoning_tokens=400)),
        (
            {"prompt_tokens": 20, "completion_tokens": 1, "thoughts_token_count": 9, "total_tokens": 30},
            Usage(20, output_tokens=1, reasoning_tokens=9),
        ),
        # DeepSeek
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "total_tokens": 150,
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            Usage(36, 64, output_tokens=20, reasoning_tokens=30),
        ),
        (
            {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36, "completion_tokens": 5},
            Usage(36, 64, output_tokens=5),
        ),
        # Moonshot, Mistral, relays of Anthropic's models
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "cached_tokens": 6},
            Usage(3, 6, output_tokens=2),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 2, "num_cached_tokens": 6}, Usage(3, 6, output_tokens=2)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 3,
            },
            Usage(2, 4, 3, output_tokens=2),
        ),
        # xAI: reasoning beside
        (
            {
                "prompt_tokens": 12,
                "completion_tokens": 2,
                "total_tokens": 331,
                "completion_tokens_details": {"reasoning_tokens": 317},
            },
            Usage(12, output_tokens=2, reasoning_tokens=317),
        ),
        # a transcription
        (
            {
                "type": "tokens",
                "input_tokens": 14,
                "input_token_details": {"text_tokens": 10, "audio_tokens": 4},
                "output_tokens": 101,
                "total_tokens": 115,
            },
            Usage(10, output_tokens=101, audio_input_tokens=4),
        ),
        # a realtime session
        (
            {
                "total_tokens": 253,
                "input_tokens": 132,
                "output_tokens": 121,
                "input_token_details": {
                    "text_tokens": 119,
                    "audio_tokens": 13,
                    "cached_tokens": 64,
                    "cached_tokens_details": {"text_tokens": 64, "audio_tokens": 0},
                },
                "output_token_details": {"text_tokens": 30, "audio_tokens": 91},
            },
            Usage(55, 64, output_tokens=30, audio_tokens=91, audio_input_tokens=13),
        ),
        ({"prompt_tokens": "12", "completion_tokens": "3", "total_tokens": "15"}, Usage(12, output_tokens=3)),
        ({"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 25}, Usage(20, output_tokens=5)),
    ],
)
def test_the_ways_in_which_vendors_count_are_understood(said: dict[str, Any], read: Usage) -> None:
    assert openai_usage(said) == read
    assert any_usage(said) == read


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"prompt_tokens": -1, "completion_tokens": 2}, Usage(0, output_tokens=2, doubt="input_tokens")),
        ({"prompt_tokens": 1, "completion_tokens": -2}, Usage(1, doubt="output_tokens")),
        (
            {"prompt_tokens": 1, "completion_tokens": -2, "total_tokens": 8},
            Usage(1, output_tokens=7, doubt="output_tokens"),
        ),
        ({"prompt_tokens": 10**12, "completion_tokens": 2}, Usage(0, output_tokens=2, doubt="input_tokens")),
        ({"prompt_tokens": True, "completion_tokens": 2}, Usage(0, output_tokens=2, doubt="input_tokens")),
        ({"prompt_tokens": 1.5, "completion_tokens": 2}, Usage(0, output_tokens=2, doubt="input_tokens")),
        (
            {"prompt_tokens": "many", "completion_tokens": None, "total_tokens": 1.5},
            Usage(doubt="input_tokens+total_tokens"),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 10},
            Usage(9, output_tokens=2, doubt="total_tokens"),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 10}},
            Usage(9, output_tokens=2, doubt="cached_tokens"),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "cached_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 3},
            },
            Usage(6, 3, output_tokens=2, doubt="cached_tokens"),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 2,
                "prompt_cache_hit_tokens": 90,
                "prompt_cache_miss_tokens": 40,
            },
            Usage(40, 60, output_tokens=2, doubt="cached_tokens"),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 3}},
            Usage(9, output_tokens=2, reasoning_tokens=3, doubt="reasoning_tokens"),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "completion_tokens_details": {"audio_tokens": -3}},
            Usage(9, output_tokens=2, doubt="audio_tokens"),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "completion_tokens_details": {"audio_tokens": 3}},
            Usage(9, audio_tokens=2, doubt="audio_tokens"),
        ),
    ],
)
def test_a_contradiction_is_named_and_does_not_lower_the_bill(said: dict[str, Any], read: Usage) -> None:
    assert openai_usage(said) == read


@pytest.mark.parametrize("said", [None, [], "12", {}, {"prompt_tokens": None}, {"type": "duration", "seconds": 7}])
def test_what_counts_nothing_counts_as_absent(said: Any) -> None:
    assert openai_usage(said) is None


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"total_tokens": 7}, Usage(7)),
        (
            {"billed_units": {"input_tokens": 5, "output_tokens": 2}, "tokens": {"input_tokens": 70}},
            Usage(5, output_tokens=2),
        ),
    ],
)
def test_other_endpoints_count_in_total_or_in_billed_units(said: Any, read: Usage) -> None:
    assert any_usage(said) == read


@pytest.mark.parametrize(
    ("new", "old", "kept"),
    [
        (Usage(9, output_tokens=3), Usage(9, output_tokens=2), "new"),
        (Usage(9, output_tokens=1), Usage(9, output_tokens=2), "new"),
        (Usage(), Usage(9, output_tokens=2), "old"),
        (Usage(output_tokens=1, doubt="input_tokens"), Usage(9, output_tokens=2), "old"),
        (None, Usage(9), "old"),
        (Usage(9), None, "new"),
    ],
)
def test_the_later_report_stands_unless_it_cannot_be_true(new: Usage | None, old: Usage | None, kept: str) -> None:
    assert later(new, old) is (new if kept == "new" else old)


@steady
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": NUMBERS,
            "completion_tokens": NUMBERS,
            "total_tokens": NUMBERS,
            "prompt_tokens_details": st.fixed_dictionaries(
                {}, optional={"cached_tokens": NUMBERS, "cache_write_tokens": NUMBERS}
            ),
            "completion_tokens_details": st.fixed_dictionaries(
                {}, optional={"reasoning_tokens": NUMBERS, "audio_tokens": NUMBERS}
            ),
        },
    )
)
def test_whatever_is_said_no_count_is_negative_and_the_sum_is_not_below_what_was_said(said: dict[str, Any]) -> None:
    usage = openai_usage(said)
    if usage is None:
        return
    counts = [value for value in dataclasses.astuple(usage) if type(value) is int]
    assert min(counts) >= 0
    for name, total in (("prompt_tokens", usage.all_input), ("completion_tokens", usage.all_output)):
        told = said.get(name)
        told = int(told) if type(told) in (str, float) and str(told) != "nan" and float(told).is_integer() else told
        if type(told) is int and 0 <= told < 10**8:
            assert total >= told


COUNT = st.integers(0, 3) | st.sampled_from([None, -1, 1.0, True, "1", "", [], 10**8])
DETAILS = st.none() | st.dictionaries(
    st.sampled_from(["cached_tokens", "reasoning_tokens", "audio_tokens", "cache_write_tokens"]), COUNT, max_size=3
)


@settings(steady, max_examples=1000)
@given(
    names=st.sampled_from([("prompt", "completion"), ("input", "output"), ("prompt", "output")]),
    counts=st.tuples(st.integers(0, 3), st.integers(0, 3)) | st.tuples(COUNT, COUNT),
    total=st.none() | COUNT.filter(lambda count: count is not True),
    details=st.tuples(DETAILS, DETAILS),
    more=st.dictionaries(st.sampled_from(["cost", "cached_tokens", "input_tokens", "x"]), COUNT, max_size=1),
)
def test_usual_reports_are_read_as_all_others(
    names: tuple[str, str], counts: tuple[Any, Any], total: Any, details: tuple[Any, Any], more: dict[str, Any]
) -> None:
    said = {f"{name}_tokens": count for name, count in zip(names, counts, strict=True)}
    said |= {
        f"{name}_tokens_details": detail for name, detail in zip(names, details, strict=True) if detail is not None
    }
    said |= {"total_tokens": sum(counts) if total is None and set(map(type, counts)) == {int} else total, **more}
    fees = (("web_search", 1),)
    assert openai_usage(said, tier="flex", fees=fees) == _Reading(said).usage("flex", fees)
