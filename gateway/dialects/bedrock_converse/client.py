"""Registers this package as a client dialect."""

from __future__ import annotations

from typing import Any

from gateway.dialects.bedrock_converse.answer import reply, writer
from gateway.dialects.bedrock_converse.dialect import Endpoint, at, named_in
from gateway.dialects.bedrock_converse.native import ConverseToConverse
from gateway.dialects.bedrock_converse.request import EXTRAS
from gateway.dialects.client import Client
from gateway.dialects.parsed_as_chat import ParsedAsChat
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan


class _AsChat(ParsedAsChat):
    """Translates to chat. Leaves out the fields that only a Converse backend can pass on to its model."""

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        found = super().chat(request, plan)
        found.pop(EXTRAS, None)
        return found


_TRANSLATION = _AsChat(
    "bedrock_converse",
    {
        "max_completion_tokens": "inferenceConfig.maxTokens",
        "reasoning_effort": "additionalModelRequestFields.thinking",
        "response_format": "outputConfig.textFormat",
        "stop": "inferenceConfig.stopSequences",
        "tools": "toolConfig.tools",
    },
    reply,
    writer,
)
CLIENT = Client(
    Endpoint("", stream=False),
    at=at,
    shapes=named_in,
    native=ConverseToConverse(_TRANSLATION),
    translation=_TRANSLATION,
    error_schema={
        "BedrockError": {
            "type": "object",
            "required": ["__type", "message"],
            "properties": {"__type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
)
