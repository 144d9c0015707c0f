"""What Anthropic's usage objects say."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.domain.money.usage import Usage


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"input_tokens": 3, "output_tokens": 2}, Usage(3, output_tokens=2)),
        (
            {
                "input_tokens": 3,
                "cache_read_input_tokens": 40,
                "cache_creation_input_tokens": 30,
                "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
                "output_tokens": 9,
                "output_tokens_details": {"thinking_tokens": 4},
                "service_tier": "standard",
            },
            Usage(3, 40, 10, 20, output_tokens=5, reasoning_tokens=4),
        ),
        (
            {"input_tokens": 3, "cache_creation": {"ephemeral_5m_input_tokens": 7}, "output_tokens": 1},
            Usage(3, cache_write_5m_tokens=7, output_tokens=1),
        ),
        ({"input_tokens": "3", "output_tokens": "2"}, Usage(3, output_tokens=2)),
        ({"output_tokens": 2}, Usage(output_tokens=2)),
        (
            {"input_tokens": 3, "output_tokens": 2, "service_tier": "batch"},
            Usage(3, output_tokens=2, service_tier="batch"),
        ),
        ({"input_tokens": 3, "speed": "fast", "service_tier": "standard"}, Usage(3, service_tier="fast")),
        ({"input_tokens": 3, "inference_geo": "us"}, Usage(3, service_tier="us")),
        ({"input_tokens": 3, "inference_geo": "global", "speed": "standard"}, Usage(3)),
        (
            {
                "input_tokens": 3,
                "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 4, "code_execution_requests": 1},
            },
            Usage(3, fees=(("web_search", 2), ("code_execution", 1))),
        ),
        ({"input_tokens": 3, "server_tool_use": {"web_search_requests": 0}}, Usage(3)),
        ({"input_tokens": -3, "output_tokens": 2}, Usage(output_tokens=2, doubt="input_tokens")),
        (
            {"input_tokens": 3, "output_tokens": 2, "output_tokens_details": {"thinking_tokens": 9}},
            Usage(3, reasoning_tokens=9, doubt="reasoning_tokens"),
        ),
        (
            {
                "input_tokens": 3,
                "cache_creation_input_tokens": 5,
                "cache_creation": {"ephemeral_1h_input_tokens": 20},
                "output_tokens": 2,
            },
            Usage(3, cache_write_1h_tokens=20, output_tokens=2, doubt="cache_write_tokens"),
        ),
    ],
)
def test_classes_tier_and_charged_tools_are_read(said: dict[str, Any], read: Usage) -> None:
    assert messages_usage(said) == read


@pytest.mark.parametrize("said", [None, [], {}, {"service_tier": "standard"}])
def test_what_counts_nothing_counts_as_absent(said: Any) -> None:
    assert messages_usage(said) is None
