"""Translator for a Gemini client and a backend of any other dialect. Chat is the format in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects.gemini_generate.answer import GeminiWriter, reply
from gateway.dialects.openai_chat.native import kept_messages
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan


class GeminiToChat:
    """Implements `Translation` for Gemini. The parser has already converted the request to a chat request."""

    client: DialectName = "gemini_generate"
    fields: Mapping[str, str] = {
        "messages": "contents",
        "max_completion_tokens": "generationConfig.maxOutputTokens",
        "reasoning_effort": "generationConfig.thinkingConfig",
        "response_format": "generationConfig.responseSchema",
        "stop": "generationConfig.stopSequences",
        "n": "generationConfig.candidateCount",
    }

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        body = {name: value for name, value in request.body.items() if name != "stream_options"}
        return {**body, "messages": [message for _, message in kept_messages(request, plan)]}

    def plain(self, request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> bytes:
        return orjson.dumps(reply(request, completion, usage))

    def writer(self, request: CompletionRequest) -> GeminiWriter:
        return GeminiWriter(request)
