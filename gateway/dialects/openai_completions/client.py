"""Registers this package as a client dialect."""

from __future__ import annotations

from gateway.dialects.client import Client
from gateway.dialects.openai_completions import dialect
from gateway.dialects.openai_completions.as_chat import CompletionsAsChat
from gateway.dialects.openai_completions.native import CompletionsToCompletions

CLIENT = Client(
    dialect,
    {"/completions": dialect, "/v1/completions": dialect},
    translation=CompletionsAsChat(),
    native=CompletionsToCompletions(),
)
