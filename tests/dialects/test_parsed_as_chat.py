"""Client dialects whose parsers return a request in the form of chat: what their common translation does."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.clients import at
from gateway.dialects.registry import wire
from gateway.domain.request import Controls
from gateway.domain.routing.route import ContextPlan

ROLES = ("user", "assistant", "user")
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemini_generate": (
        "/v1beta/models/x:generateContent",
        {
            "contents": [
                {"role": role.replace("assistant", "model"), "parts": [{"text": f"{role} {place}"}]}
                for place, role in enumerate(ROLES)
            ]
        },
    ),
    "bedrock_converse": (
        "/model/x/converse",
        {"messages": [{"role": role, "content": [{"text": f"{role} {place}"}]} for place, role in enumerate(ROLES)]},
    ),
    "ollama_chat": (
        "/api/chat",
        {"model": "x", "messages": [{"role": role, "content": f"{role} {place}"} for place, role in enumerate(ROLES)]},
    ),
}


@pytest.mark.parametrize("dialect", BODIES)
def test_a_turn_that_is_dropped_is_not_sent(dialect: str) -> None:
    path, body = BODIES[dialect]
    endpoint = at(path)
    assert endpoint is not None
    request = endpoint.parse(orjson.dumps(body), "req_1", Controls(), {})
    sent = wire(dialect, "openai_chat").body(request, "m", ContextPlan(1, 1, drop=frozenset({0, 1})))
    assert [message["content"] for message in orjson.loads(sent)["messages"]] == ["user 2"]
