"""Stored responses and the teams that store them."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_responses.dialect import parse
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant
from gateway.responses.store import Item, StoredResponse

QUESTION: Item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "first"}]}


def answer(item_id: str = "msg_1", text: str = "said") -> Item:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def stored(response_id: str = "resp_1", *items: Item, session: str = "s") -> StoredResponse:
    body = {"id": response_id, "object": "response", "output": list(items or (answer(),))}
    return StoredResponse(response_id, session, body, [QUESTION])


def tenant(team: str = "search", *, key: str = "", storing: bool = True) -> Tenant:
    policy: dict[str, Any] = {"data": {"store_prompts": storing}}
    return Tenant(Key(key or f"key_{team}", team), Policy(team=team, **policy), "e1")


def ask(request_id: str = "req_2", controls: Controls | None = None, **fields: Any) -> CompletionRequest:
    body = {"model": "small", "input": "hi", **fields}
    return parse(orjson.dumps(body), request_id, controls or Controls(), {})
