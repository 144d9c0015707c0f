"""Registers this package as a client dialect."""

from __future__ import annotations

from gateway.dialects.client import Client
from gateway.dialects.openai_responses import dialect
from gateway.dialects.openai_responses.native import ResponsesToResponses
from gateway.dialects.translate.responses_to_chat.translator import ResponsesToChat

CLIENT = Client(
    dialect,
    {"/responses": dialect, "/v1/responses": dialect},
    conversation=dialect,
    translation=ResponsesToChat(),
    native=ResponsesToResponses(),
)
