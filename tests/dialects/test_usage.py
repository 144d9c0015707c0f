"""What backends say they used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.usage import openai_usage
from gateway.domain.usage import Usage
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
    "said",
    [
        None,
        [],
        "12",
        {},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 0, "completion_tokens": 9},
        {"prompt_tokens": -1, "completion_tokens": 2},
        {"prompt_tokens": 1, "completion_tokens": -2},
        {"prompt_tokens": 10**12, "completion_tokens": 2},
        {"prompt_tokens": True, "completion_tokens": 2},
        {"prompt_tokens": "9", "completion_tokens": 2},
        {"prompt_tokens": 1.5, "completion_tokens": 2},
        {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 10}},
        {"prompt_tokens": 9, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 3}},
        {"prompt_tokens": 9, "completion_tokens": 2, "completion_tokens_details": {"audio_tokens": -3}},
    ],
)
def test_garbage_counts_as_absent(said: Any) -> None:
    assert openai_usage(said) is None


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
def test_whatever_is_said_no_count_is_negative_and_the_sum_is_what_was_said(said: dict[str, Any]) -> None:
    usage = openai_usage(said)
    if usage is None:
        return
    assert min(usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens) >= 0
    said_input = said.get("prompt_tokens") or 0
    assert usage.all_input in (said_input, said_input + usage.cache_write_5m_tokens)
    said_output = said.get("completion_tokens") or 0
    assert usage.all_output in (said_output, said_output + usage.reasoning_tokens)
