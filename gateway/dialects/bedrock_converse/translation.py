"""Translator for a Converse client and a backend of any dialect. Chat is the format in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects.bedrock_converse.answer import ConverseWriter, reply
from gateway.dialects.openai_chat.native import kept_messages
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan


class ConverseToChat:
    """Implements `Translation` for Converse. The parser has already converted the request to a chat request."""

    client: DialectName = "bedrock_converse"
    fields: Mapping[str, str] = {
        "max_completion_tokens": "inferenceConfig.maxTokens",
        "reasoning_effort": "additionalModelRequestFields.thinking",
        "response_format": "outputConfig.textFormat",
        "stop": "inferenceConfig.stopSequences",
        "tools": "toolConfig.tools",
    }

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        body = {name: value for name, value in request.body.items() if name != "stream_options"}
        return {**body, "messages": [message for _, message in kept_messages(request, plan)]}

    def plain(self, request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> bytes:
        return orjson.dumps(reply(request, completion, usage))

    def writer(self, request: CompletionRequest) -> ConverseWriter:
        return ConverseWriter(request)
