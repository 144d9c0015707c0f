"""How far the policy lowers the output limit of a request, beside the thinking that it asks for."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.requests.output_cap import cap_output
from tests.support.requests import chat_request, request_in


@pytest.mark.parametrize(
    ("dialect", "fields", "limit"),
    [
        ("anthropic_messages", {"max_tokens": 90_000}, 500),
        ("anthropic_messages", {"max_tokens": 90_000, "thinking": {"type": "enabled", "budget_tokens": 8000}}, 8500),
        ("anthropic_messages", {"max_tokens": 90_000, "thinking": {"type": "disabled"}}, 500),
        ("anthropic_messages", {"max_tokens": 90_000, "thinking": {"type": "adaptive"}}, 25_076),
        (
            "anthropic_messages",
            {"max_tokens": 90_000, "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            1524,
        ),
        ("openai_chat", {"max_completion_tokens": 90_000, "reasoning_effort": "medium"}, 8692),
        ("openai_chat", {"reasoning_effort": "none"}, 500),
        ("openai_responses", {"reasoning": {"effort": "high"}}, 25_076),
        (
            "gemini_generate",
            {"generationConfig": {"maxOutputTokens": 90_000, "thinkingConfig": {"thinkingBudget": 4000}}},
            4500,
        ),
        ("gemini_generate", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}, 1524),
        ("gemini_generate", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, 500),
    ],
)
def test_the_thinking_that_a_request_asks_for_is_added_to_the_limit(
    dialect: str, fields: dict[str, Any], limit: int
) -> None:
    request = request_in(dialect, **fields)
    cap_output(request, 500)
    assert (request.max_output_tokens, request.output_cap) == (limit, limit)


def test_capping_twice_is_capping_once() -> None:
    request = chat_request(max_tokens=900)
    for _ in range(2):
        cap_output(request, 500)
    assert (request.max_output_tokens, request.output_cap) == (500, 500)


def test_what_has_no_output_is_left_alone() -> None:
    request = request_in("openai_embeddings")
    cap_output(request, 500)
    assert (request.max_output_tokens, request.output_cap) == (0, None)
