"""How hard to think, and what goes with it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import BadRequest
from tests.dialects.over_anthropic import sent, wire
from tests.dialects.samples import USER
from tests.support.requests import chat_request

OLD, MIDDLE, NEW = "claude-sonnet-4-5-20250929", "claude-opus-4-6", "claude-sonnet-5"
FUNCTION = {"type": "function", "function": {"name": "look"}}
SHOWN = {"type": "adaptive", "display": "summarized"}


def given(model: str, **fields: Any) -> dict[str, Any]:
    """What a request has beside the smallest one for `model`."""
    body = sent(model=model, **fields)
    plain = sent(model=model, **{name: fields[name] for name in ("messages", "tools") if name in fields})
    return {name: value for name, value in body.items() if plain.get(name) != value}


@pytest.mark.parametrize(
    ("model", "effort", "said"),
    [
        (NEW, "low", {"thinking": SHOWN, "output_config": {"effort": "low"}}),
        (NEW, "minimal", {"thinking": SHOWN, "output_config": {"effort": "low"}}),
        (NEW, "xhigh", {"thinking": SHOWN, "output_config": {"effort": "xhigh"}}),
        (MIDDLE, "xhigh", {"thinking": SHOWN, "output_config": {"effort": "high"}}),
        (MIDDLE, "max", {"thinking": SHOWN, "output_config": {"effort": "max"}}),
        (OLD, "high", {"thinking": {"type": "enabled", "budget_tokens": 4096}, "max_tokens": 36_096}),
        (
            "claude-3-7-sonnet-20250219",
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 5120},
        ),
        ("house-model", "medium", {"output_config": {"effort": "medium"}}),
        (NEW, "none", {}),
        (OLD, "none", {}),
    ],
)
def test_an_effort_is_said_as_the_model_understands_it(model: str, effort: str, said: dict[str, Any]) -> None:
    assert given(model, reasoning_effort=effort) == said


@pytest.mark.parametrize(("limit", "budget"), [(10_000, 4096), (4096, 4095), (1025, 1024), (1024, None), (5, None)])
def test_a_budget_is_less_than_the_answer_may_take(limit: int, budget: int | None) -> None:
    body = sent(model=OLD, reasoning_effort="high", max_completion_tokens=limit)
    assert body["max_tokens"] == limit
    assert body.get("thinking") == (budget and {"type": "enabled", "budget_tokens": budget})


def test_it_does_not_think_before_a_call_that_it_is_forced_to() -> None:
    assert "thinking" not in sent(model=OLD, reasoning_effort="low", tools=[FUNCTION], tool_choice="required")
    body = sent(model=NEW, reasoning_effort="low", tools=[FUNCTION], tool_choice=FUNCTION)
    assert "thinking" not in body
    assert body["output_config"] == {"effort": "low"}
    assert "thinking" in sent(model=OLD, reasoning_effort="low", tools=[FUNCTION], tool_choice="auto")


@pytest.mark.parametrize(("thoughts", "thinks"), [([], False), ([{"type": "redacted_thinking", "data": "x"}], True)])
def test_in_the_middle_of_its_calls_it_thinks_on_only_with_the_thoughts_before_them(
    thoughts: list[Any], thinks: bool
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        USER,
        {"role": "assistant", "content": "Hm", "tool_calls": [call], "thinking_blocks": thoughts},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    said: dict[str, Any] = {"messages": messages, "tools": [FUNCTION], "reasoning_effort": "low"}
    assert ("thinking" in sent(model=OLD, **said)) is thinks
    assert "thinking" in sent(model=NEW, **said)  # what thinks as it sees fit asks for nothing
    assert "thinking" in sent(
        model=OLD, **{**said, "messages": [*messages, {"role": "assistant", "content": "a"}, USER]}
    )


def test_what_the_client_says_in_anthropics_own_words_stands() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert given(OLD, thinking=thinking, reasoning_effort="high") == {"thinking": thinking}
    assert given(NEW, output_config={"effort": "max"}, reasoning_effort="low")["output_config"] == {"effort": "max"}
    assert given("x", thinking={"type": "disabled"}, temperature=0.5) == {
        "thinking": {"type": "disabled"},
        "temperature": 0.5,
    }


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        ("house-model", {"temperature": 0.3, "top_p": 0.9, "top_k": 5}, {"temperature": 0.3, "top_p": 0.9, "top_k": 5}),
        ("house-model", {"temperature": 1.7}, {"temperature": 1.0}),
        (OLD, {"temperature": 0.3, "top_p": 0.9}, {"temperature": 0.3}),
        (OLD, {"temperature": 1, "top_p": 0.9}, {"top_p": 0.9}),
        (OLD, {"top_p": 0.9, "top_k": 3}, {"top_p": 0.9, "top_k": 3}),
        (NEW, {"temperature": 0.3, "top_p": 0.9, "top_k": 3}, {}),
        (OLD, {"thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 0, "top_p": 0.5, "top_k": 1}, {}),
        (OLD, {"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_p": 0.97}, {"top_p": 0.97}),
    ],
)
def test_sampling_is_sent_as_far_as_the_model_takes_it(
    model: str, fields: dict[str, Any], said: dict[str, Any]
) -> None:
    found = given(model, **fields)
    found.pop("thinking", None)
    assert found == said


@pytest.mark.parametrize(("field", "value"), [("top_p", "0.5"), ("top_k", [1]), ("reasoning_effort", "extreme")])
def test_what_is_nothing_of_the_sort_is_named(field: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        wire.body(chat_request(**{field: value}), NEW, None)
    assert caught.value.param == field
