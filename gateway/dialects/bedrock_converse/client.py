"""Registers the client dialect."""

from __future__ import annotations

from gateway.dialects.bedrock_converse.answer import ConverseWriter, reply
from gateway.dialects.bedrock_converse.dialect import Endpoint, at, named_in
from gateway.dialects.client import Client
from gateway.dialects.parsed_as_chat import ParsedAsChat

CLIENT = Client(
    Endpoint("", stream=False),
    at=at,
    shapes=named_in,
    translation=ParsedAsChat(
        "bedrock_converse",
        {
            "max_completion_tokens": "inferenceConfig.maxTokens",
            "reasoning_effort": "additionalModelRequestFields.thinking",
            "response_format": "outputConfig.textFormat",
            "stop": "inferenceConfig.stopSequences",
            "tools": "toolConfig.tools",
        },
        reply,
        ConverseWriter,
    ),
    error_schema={
        "BedrockError": {
            "type": "object",
            "required": ["__type", "message"],
            "properties": {"__type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
)
