"""Anthropic messages client with an OpenAI chat backend."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from gateway.dialects.anthropic_messages import thinking
from gateway.dialects.anthropic_messages.request import output_schema
from gateway.dialects.anthropic_messages.turns import shortened, without_thinking
from gateway.dialects.translate.messages_to_chat.answer import message
from gateway.dialects.translate.messages_to_chat.parts import chat_messages, system_message
from gateway.dialects.translate.messages_to_chat.tools import chat_tools
from gateway.dialects.translate.messages_to_chat.writer import MessagesWriter
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BadRequest

LONGEST_USER = 64
"""Maximum characters of a user's name that OpenAI accepts. Coding agents send longer names."""


class MessagesToChat:
    """Implements `Translation` from Anthropic messages to chat. `top_k`, `service_tier`, `cache_control` and unknown
    fields are dropped, not refused."""

    client: DialectName = "anthropic_messages"
    fields: Mapping[str, str] = {
        "max_completion_tokens": "max_tokens",
        "reasoning_effort": "thinking",
        "response_format": "output_config.format",
        "stop": "stop_sequences",
        "user": "metadata.user_id",
    }

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        """The chat request. Raises BadRequest with the name of a block, tool or field that chat does not support."""
        body = request.body
        converted: dict[str, Any] = {"model": request.model, "messages": _messages(body, plan)}
        if request.stream:
            converted["stream"] = True
        if body.get("max_tokens") == 0:
            raise BadRequest("max_tokens must be at least 1: this model's cache cannot be warmed.", param="max_tokens")
        if body.get("max_tokens"):
            converted["max_completion_tokens"] = body["max_tokens"]
        converted |= {name: body[name] for name in ("temperature", "top_p") if body.get(name) is not None}
        if stop := body.get("stop_sequences"):
            converted["stop"] = stop
        converted |= chat_tools(body)
        if (effort := thinking.effort(body)) is not None:
            converted["reasoning_effort"] = effort
        if (schema := output_schema(body)) is not None:
            converted["response_format"] = _response_format(schema)
        if user := _user(body.get("metadata") or {}):
            converted["user"] = user
        return converted

    def plain(self, request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> bytes:
        return orjson.dumps(message(request, completion, usage))

    def writer(self, request: CompletionRequest) -> MessagesWriter:
        return MessagesWriter(request)


def _messages(body: Mapping[str, Any], plan: ContextPlan | None) -> list[dict[str, Any]]:
    found = [system_message(body["system"])] if body.get("system") else []
    for index, value in enumerate(body["messages"]):
        if plan is not None and index in plan.drop:
            continue
        if plan is not None and index in plan.replace:
            value = shortened(value, plan.replace[index])
        if plan is not None and index in plan.no_thinking:
            value = without_thinking(value)
        found += chat_messages(value, f"messages[{index}]")
    return found


def _user(metadata: Mapping[str, Any]) -> str | None:
    """The user's name in `metadata`. A name that is too long is replaced by its hash. None if there is no name."""
    user = metadata.get("user_id")
    if type(user) is not str or len(user) <= LONGEST_USER:
        return user if type(user) is str else None
    return sha256(user.encode()).hexdigest()


def _response_format(schema: Any) -> dict[str, Any]:
    """The field `response_format` for a JSON schema. Anthropic always enforces the schema. OpenAI enforces it only with
    `strict`, and rejects `strict` for some schemas."""
    if type(schema) is not dict:
        where = "output_config.format.schema"
        raise BadRequest(f"{where} must be an object.", param=where)
    form = {"name": "answer", "schema": schema, "strict": _strictly_possible(schema)}
    return {"type": "json_schema", "json_schema": form}


def _strictly_possible(schema: Any) -> bool:
    """Whether OpenAI accepts the schema with `strict`: every object requires all its properties and allows no other
    properties."""
    if type(schema) is list:
        return all(map(_strictly_possible, schema))
    if type(schema) is not dict:
        return True
    if schema.get("type") == "object":
        names, required = list(schema.get("properties") or ()), schema.get("required") or []
        if schema.get("additionalProperties") is not False or type(required) is not list or set(names) - set(required):
            return False
    return all(map(_strictly_possible, schema.values()))
