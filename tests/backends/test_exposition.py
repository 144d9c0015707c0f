"""Three servers' own words for the same few figures. llama.cpp's are recorded; the files say what of the others is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.load.exposition import Reading, read

RECORDED = Path(__file__).with_name("metrics")


@pytest.mark.parametrize(
    ("server", "reading"),
    [
        ("llamacpp", Reading(2, 2, None, 45 * 1.97778, None)),
        ("vllm", Reading(40, 5, 0.97, 1_545_678, None)),
        ("sglang", Reading(162, 2826, 0.28, 7_557_572, pytest.approx(86.508, abs=0.001))),
    ],
)
def test_each_servers_text_is_understood(server: str, reading: Reading) -> None:
    assert read((RECORDED / f"{server}.txt").read_text()) == reading


def test_what_is_no_number_counts_for_nothing() -> None:
    text = 'vllm:num_requests_running{a="1"} 3\nvllm:num_requests_running{a="2"} NaN\nvllm:num_requests_waiting -4\n'
    assert read(text) == Reading(3, 0)


@pytest.mark.parametrize(
    "text", ["", "<html>hello</html>", "process_cpu_seconds_total 3\n", "vllm:num_requests_waiting 3\n", "vllm:{} 1\n"]
)
def test_other_pages_tell_nothing(text: str) -> None:
    assert read(text) is None


@given(st.text(), st.sampled_from(["vllm:num_requests_running", "llamacpp:requests_processing", "sglang:token_usage"]))
def test_whatever_stands_there_it_does_not_raise(noise: str, name: str) -> None:
    read(f"{name}{noise}\n{name}{{{noise}}} 1\n{noise}")
