"""Thinking in earlier turns is input that the model reads, so it counts against limits."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.context import measure
from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.dialects.anthropic_messages.dialect import parse
from gateway.dialects.openai_responses.thinking import pack
from gateway.dialects.registry import wire
from gateway.domain.request import CompletionRequest, Controls
from tests.context.conftest import backend_of, hosted_of, tenant_of
from tests.support.requests import chat_request, responses_request

THOUGHT = "I wonder whether the parcel leaves Leeds at noon or later. " * 900
"""About 12,000 tokens."""


def session(steps: int, signature: str = "s") -> CompletionRequest:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the parcel."}]
    for step in range(steps):
        thinking = {"type": "thinking", "thinking": THOUGHT, "signature": signature}
        call = {"type": "tool_use", "id": f"t{step}", "name": "look", "input": {}}
        messages.append({"role": "assistant", "content": [thinking, call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{step}", "content": "no"}]}
        )
    body = {"model": "claude-opus-4-6", "max_tokens": 100, "messages": messages}
    return parse(orjson.dumps(body), "req_1", Controls(), {})


async def test_thinking_that_exceeds_the_teams_limit_is_trimmed_with_its_step(counter: Counter) -> None:
    plan = await Contexts(counter).plan_for(session(6), tenant_of(60_000), backend_of(model="claude-opus-4-6"))
    assert plan.drop >= {1, 2}
    assert not plan.drop & {0, 11, 12}
    assert plan.tokens_after <= 60_000


async def test_thinking_is_counted_as_text_and_its_signature_is_not(counter: Counter) -> None:
    exact = 2 * counter.count(THOUGHT)
    for request in (session(2), session(2, "x" * 9000)):
        total = (await measure.sizes(request, counter, "o200k_base")).total
        assert exact <= total < exact * 1.02
        assert abs(measure.estimated(request) - total) < total * 0.2


async def test_thinking_that_the_provider_may_leave_out_is_sent_first(counter: Counter) -> None:
    request = session(6)
    size = (await measure.sizes(request, counter, "o200k_base")).total
    backend = hosted_of(int(size * 0.8), model="claude-opus-4-6")
    assert not (await Contexts(counter).plan_for(request, tenant_of(), backend)).touched
    request.too_long_for = frozenset({backend.name})
    assert (await Contexts(counter).plan_for(request, tenant_of(), backend)).touched


async def test_what_thinking_holds_money_for_is_counted_once(counter: Counter) -> None:
    """As text, and not as strings beside it too."""
    request = session(2)
    plan = await Contexts(counter).plan_for(request, tenant_of(), backend_of(model="claude-opus-4-6"))
    assert plan.tokens_after < 2 * counter.count(THOUGHT) * 1.2


async def test_thinking_whose_history_was_trimmed_is_left_out_and_that_of_the_running_loop_is_not(
    counter: Counter,
) -> None:
    """The model signs its thinking together with everything before it."""
    old = session(6).body["messages"]
    messages = [*old, {"role": "user", "content": "And the others?"}, *old[1:3]]
    body = {"model": "claude-opus-4-6", "max_tokens": 100, "messages": messages}
    request = parse(orjson.dumps(body), "req_1", Controls(), {})
    plan = await Contexts(counter).plan_for(request, tenant_of(60_000), backend_of(model="claude-opus-4-6"))
    assert plan.drop
    assert plan.no_thinking == {at for at in (1, 3, 5, 7, 9, 11) if at not in plan.drop}
    assert plan.tokens_after < 40_000


async def test_a_chat_that_is_trimmed_loses_the_thinking_whose_history_changes(counter: Counter) -> None:
    """But not the thinking of the running tool loop, which the provider requires."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the parcel."}]
    for step in range(8):
        function = {"name": "look", "arguments": "{}"}
        call = {"id": f"t{step}", "type": "function", "function": function}
        thought = [{"type": "thinking", "thinking": "Where is it?", "signature": f"s{step}"}]
        messages.append({"role": "assistant", "content": None, "tool_calls": [call], "thinking_blocks": thought})
        messages.append({"role": "tool", "tool_call_id": f"t{step}", "content": "The parcel is not there. " * 100})
        if step == 5:
            messages += [{"role": "assistant", "content": "Not there."}, {"role": "user", "content": "Go on."}]
    request = chat_request(messages=messages, model="claude-opus-4-6")
    plan = await Contexts(counter).plan_for(request, tenant_of(3500), backend_of(model="claude-opus-4-6"))
    assert plan.drop
    for backend in ("openai_chat", "anthropic_messages"):
        sent = orjson.loads(wire("openai_chat", backend).body(request, "claude-opus-4-6", plan))["messages"]
        signed = [name for name in (f"s{step}" for step in range(8)) if f'"{name}"' in orjson.dumps(sent).decode()]
        assert signed == ["s6", "s7"]


async def test_a_responses_session_that_is_trimmed_loses_the_packed_thinking_whose_history_changes(
    counter: Counter,
) -> None:
    items: list[dict[str, Any]] = [{"role": "user", "content": "Find the parcel."}]
    for step in range(8):
        thought = {"type": "thinking", "thinking": "Where is it?", "signature": f"s{step}"}
        items.append({"type": "reasoning", "summary": [], "encrypted_content": pack([thought])})
        items.append({"type": "function_call", "call_id": f"t{step}", "name": "look", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"t{step}", "output": "It is not there. " * 100})
        if step in (2, 5):
            items += [{"role": "assistant", "content": "Not there."}, {"role": "user", "content": "Go on."}]
    request = responses_request(input=items, model="claude-opus-4-6")
    plan = await Contexts(counter).plan_for(request, tenant_of(3500), backend_of(model="claude-opus-4-6"))
    assert plan.drop
    sent = wire("openai_responses", "anthropic_messages").body(request, "claude-opus-4-6", plan).decode()
    assert [step for step in range(8) if f'"t{step}"' in sent] == [3, 4, 5, 6, 7]
    assert [step for step in range(8) if f'"s{step}"' in sent] == [6, 7]
