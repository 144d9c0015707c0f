"""What stands in a conversation beside text, calls and files is held for, because a provider may bill it as input."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest
from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, backend, open_gateway, tenant
from tests.fakes.provider import Provider
from tests.money.reporting import request_for

LONG = "word " * 10_000
"""Some 10,000 tokens, which cost 0.01 USD."""
SEALED = "gAAAAABo" * 6250
CHAT, RESPONSES, MESSAGES, COMPLETIONS = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions"
USER = {"role": "user", "content": "hello there"}
POOR = tenant(cache={"enabled": False}, budget={"limit_usd": "0.005", "window": "day"})


def more(provider: Provider) -> tuple[Backend, ...]:
    return (backend(provider, "claude", kind="anthropic", window_tokens=None),)


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, more=more, window_tokens=None) as opened:
        yield opened


def after_assistant(**fields: Any) -> CompletionRequest:
    return request_for(CHAT, max_tokens=20, messages=[{"role": "assistant", "content": "a", **fields}, USER])


def parts(*content: dict[str, Any]) -> CompletionRequest:
    return request_for(
        CHAT, max_tokens=20, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, *content]}]
    )


def items(*given: dict[str, Any]) -> CompletionRequest:
    return request_for(RESPONSES, max_output_tokens=20, input=list(given))


def blocks(*content: dict[str, Any], **fields: Any) -> CompletionRequest:
    messages = [USER, {"role": "assistant", "content": [*content, {"type": "text", "text": "a"}], **fields}, USER]
    return request_for(MESSAGES, model="claude", max_tokens=20, messages=messages)


RESULT = {"type": "tool_result", "tool_use_id": "t"}
CALL: dict[str, Any] = {"type": "function", "function": {"name": "f", "arguments": LONG}}
BESIDE: dict[str, CompletionRequest] = {
    "a name": after_assistant(name=LONG),
    "reasoning": after_assistant(reasoning_content=LONG),
    "reasoning with details": after_assistant(reasoning_details=[{"type": "reasoning.text", "text": LONG}]),
    "reasoning in disguise": after_assistant(reasoning_details=[{"type": "file", "text": LONG}]),
    "a message in disguise": after_assistant(reasoning_content=LONG, type="image_url"),
    "a refusal": after_assistant(refusal=LONG),
    "a call in the old way": after_assistant(function_call={"name": "f", "arguments": LONG}),
    "a call without an id": after_assistant(tool_calls=[CALL]),
    "no text but reasoning": after_assistant(content=None, reasoning_content="é" * 9000),
    "a long key": after_assistant(more={LONG: 1}),
    "a long role": after_assistant(role=LONG),
    "a long role alone": request_for(CHAT, max_tokens=20, messages=[{"role": LONG, "content": "a"}]),
    "a long role of an item": items({"role": LONG, "content": "a"}),
    "a long role at Anthropic": request_for(MESSAGES, model="claude", max_tokens=20, messages=[{**USER, "role": LONG}]),
    "a part of thoughts": parts({"type": "thinking", "thinking": LONG}),
    "a note beside a text": parts({"type": "text", "text": "a", "note": LONG}),
    "a summary": items({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": LONG}]}, USER),
    "sealed reasoning": items({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": SEALED}, USER),
    "reasoning that nothing follows": items(USER, {"type": "reasoning", "id": "r", "encrypted_content": SEALED}),
    "reasoning alone": items({"type": "reasoning", "id": "r", "encrypted_content": SEALED}),
    "compaction": items({"type": "compaction", "id": "c", "encrypted_content": SEALED}, USER),
    "a search": items({"type": "tool_search_call", "call_id": "s", "arguments": {"query": LONG}}, USER),
    "what a server's tool said": items(
        {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": LONG}, USER
    ),
    "what a shell said": items({"type": "shell_call_output", "call_id": "s", "output": LONG}, USER),
    "a custom call's name": items({"type": "custom_tool_call", "call_id": "a", "name": LONG, "input": ""}, USER),
    "calls under another field": request_for(
        RESPONSES,
        max_output_tokens=20,
        input=[{"type": "function_call", "call_id": "a", "name": "f", "arguments": LONG}, USER],
        messages=[{}, {}],
    ),
    "thoughts": blocks({"type": "thinking", "thinking": LONG, "signature": ""}),
    "signed thoughts": blocks({"type": "thinking", "thinking": "", "signature": SEALED}),
    "redacted thoughts": blocks({"type": "redacted_thinking", "data": SEALED}),
    "a source": blocks({**RESULT, "content": [{"type": "search_result", "source": LONG, "title": "t", "content": []}]}),
    "a server's call": blocks({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": LONG}}),
    "calls in another dialect's words": blocks(
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": LONG}}, tool_calls=[{"id": "t"}]
    ),
    "a suffix": request_for(COMPLETIONS, max_tokens=20, suffix=LONG),
}


@pytest.mark.parametrize("what", BESIDE)
async def test_what_stands_beside_text_is_held_for(gateway: InProcessGateway, what: str) -> None:
    with pytest.raises(BudgetExhausted):
        await gateway.read(BESIDE[what], POOR)
    assert not gateway.provider.exchanges


HARMLESS: dict[str, CompletionRequest] = {
    "a name": after_assistant(name="ann"),
    "reasoning": after_assistant(reasoning_content="First I say hello."),
    "empty fields": after_assistant(refusal=None, annotations=[], function_call=None, audio=None),
    "reasoning items": items({"type": "reasoning", "id": "rs_" + "a" * 48, "summary": []}, USER),
}


@pytest.mark.parametrize("what", HARMLESS)
async def test_a_little_beside_text_changes_nothing(gateway: InProcessGateway, what: str) -> None:
    await gateway.read(HARMLESS[what], POOR)
    assert len(gateway.provider.exchanges) == 1


async def test_what_goes_with_a_turn_that_is_left_out_is_not_held_for(
    state: State, database: Database, tmp_path: Path
) -> None:
    old = {"role": "user", "content": LONG, "name": LONG}
    async with open_gateway(state, database, tmp_path, window_tokens=8000) as gateway:
        with pytest.raises(BudgetExhausted):
            await gateway.read(request_for(CHAT, max_tokens=20, messages=[{**old, "content": "a"}, *2 * [USER]]), POOR)
        answer = {"role": "assistant", "content": "a"}
        await gateway.read(request_for(CHAT, max_tokens=20, messages=[old, answer, USER]), POOR)
        assert [message["content"] for message in gateway.provider.last.json["messages"]] == ["hello there"]


async def test_an_answer_may_fill_the_window_beside_what_its_provider_may_not_count(
    state: State, database: Database, tmp_path: Path
) -> None:
    """7,000 tokens of reasoning that the provider leaves out make no room for a shorter answer only."""
    async with open_gateway(state, database, tmp_path, window_tokens=8000) as gateway:
        fields: dict[str, Any] = {"reasoning_content": "word " * 2800}
        messages = [{"role": "assistant", "content": "a", **fields}, USER]
        poor = tenant(cache={"enabled": False}, budget={"limit_usd": "0.05", "window": "day"})
        await gateway.read(request_for(CHAT, messages=messages), poor)
        told = gateway.provider.last.json
        assert 0 < told.get("max_tokens", 8000) * 10 / 1e6 <= 0.05
