"""A translator changes no message of a request, because later requests of a session have the same objects."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.clients import CONVERSATIONS
from gateway.dialects.registry import wire
from gateway.domain.prompt_cache import CacheMarks
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import ContextPlan
from tests.dialects.test_known_bodies import PATHS, turn

BACKENDS = (
    *("openai_chat", "anthropic_messages", "openai_responses"),
    *("bedrock_converse", "gemini_generate", "ollama_chat"),
)
USER: dict[str, Any] = {
    "role": "user",
    "content": [{"type": "text", "text": "Mend it.", "cache_control": {"type": "ephemeral"}}],
}
THINKING = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
PLANS = (
    None,
    ContextPlan(1, 1, marks=CacheMarks("5m", fixed=True)),
    ContextPlan(9, 1, drop=frozenset({3, 4}), replace={6: "[left out]"}, no_thinking=frozenset({1, 3, 5})),
)


def request_of(path: str) -> CompletionRequest:
    items = [{**USER, "type": "message", "content": "Mend it."} if path == "/v1/responses" else USER]
    for number in range(1, 6):
        items += turn(path, number, f"line {number}\n" * 9)
    if path == "/v1/messages":
        items[1]["content"].insert(0, THINKING)
    if path == "/v1/chat/completions":
        items[1]["thinking_blocks"] = [THINKING]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tool: dict[str, Any] = {"name": "read", "input_schema": schema}
    if path == "/v1/responses":
        tool = {"type": "function", "name": "read", "parameters": schema}
    elif path == "/v1/chat/completions":
        tool = {"type": "function", "function": {"name": "read", "parameters": schema}}
    dialect = CONVERSATIONS[path]
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    raw = orjson.dumps({"model": "m", dialect.CONVERSATION: items, "tools": [tool], limit: 100})
    return dialect.parse(raw, "r", Controls(), {}, None)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", PATHS)
def test_no_translator_changes_the_messages(path: str, backend: str, plan: ContextPlan | None) -> None:
    request = request_of(path)
    before = orjson.dumps(request.body)
    sent = wire(request.dialect, backend).body(request, "m", plan)
    assert b"Mend it." in sent
    assert orjson.dumps(request.body) == before
