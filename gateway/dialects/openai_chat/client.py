"""Registers this package as a client dialect."""

from __future__ import annotations

from gateway.dialects.client import Client
from gateway.dialects.openai_chat import dialect

_ERROR = {
    "message": {"type": "string"},
    "type": {"type": ["string", "null"]},
    "param": {"type": ["string", "null"]},
    "code": {"type": ["string", "integer", "null"]},
}

CLIENT = Client(
    dialect,
    {"/chat/completions": dialect, "/v1/chat/completions": dialect},
    conversation=dialect,
    error_schema={
        "OpenAIError": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"type": "object", "required": [*_ERROR], "properties": _ERROR}},
        }
    },
)
