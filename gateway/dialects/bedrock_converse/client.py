"""Registers the client dialect."""

from __future__ import annotations

from gateway.dialects.bedrock_converse.dialect import Endpoint, at, named_in
from gateway.dialects.bedrock_converse.translation import ConverseToChat
from gateway.dialects.client import Client

CLIENT = Client(
    Endpoint("", stream=False),
    at=at,
    shapes=named_in,
    translation=ConverseToChat(),
    error_schema={
        "BedrockError": {
            "type": "object",
            "required": ["__type", "message"],
            "properties": {"__type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
)
