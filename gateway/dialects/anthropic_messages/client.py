"""Registers this package as a client dialect."""

from __future__ import annotations

from gateway.dialects.anthropic_messages import dialect
from gateway.dialects.anthropic_messages.native import MessagesToMessages
from gateway.dialects.anthropic_messages.request import parse_prompt
from gateway.dialects.client import Client, Count, Shown
from gateway.dialects.translate.messages_to_chat.translator import MessagesToChat
from gateway.domain.request import Controls

_ERROR = {"type": {"type": "string"}, "message": {"type": "string"}}

CLIENT = Client(
    dialect,
    {"/v1/messages": dialect},
    conversation=dialect,
    translation=MessagesToChat(),
    native=MessagesToMessages(),
    error_schema={
        "AnthropicError": {
            "type": "object",
            "required": ["type", "error"],
            "properties": {
                "type": {"const": "error"},
                "error": {"type": "object", "required": [*_ERROR], "properties": _ERROR},
            },
        }
    },
    counts=(
        Count(
            ("/v1/messages/count_tokens",),
            Shown("countTokens", "Tokens of a prompt; free.", {"type": "object"}),
            parse=lambda body, headers, _: parse_prompt(body, "", Controls(), headers),
            answer=lambda tokens: {"input_tokens": tokens},
            asks_backend=True,
        ),
    ),
)
