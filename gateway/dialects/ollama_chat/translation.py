"""Translator for an Ollama client and a backend of any dialect. Chat is the format in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects.ollama_chat.answer import OllamaWriter, reply
from gateway.dialects.openai_chat.native import kept_messages
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan


class OllamaToChat:
    """Implements `Translation` for Ollama. The parser has already converted the request to a chat request."""

    client: DialectName = "ollama_chat"
    fields: Mapping[str, str] = {
        "max_completion_tokens": "options.num_predict",
        "reasoning_effort": "think",
        "response_format": "format",
        "stop": "options.stop",
    }

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        body = {name: value for name, value in request.body.items() if name != "stream_options"}
        return {**body, "messages": [message for _, message in kept_messages(request, plan)]}

    def plain(self, request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> bytes:
        return orjson.dumps(reply(request, completion, usage))

    def writer(self, request: CompletionRequest) -> OllamaWriter:
        return OllamaWriter(request)
