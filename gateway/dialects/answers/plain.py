"""A plain (not streamed) answer: bytes for the client, and what the gateway read from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.dialects.openai_chat.message import generated_text
from gateway.domain.money.usage import Usage


@dataclass(slots=True)
class Plain:
    body: bytes
    """In the client's dialect, ready to send."""
    usage: Usage | None
    """None: the backend did not say, or said something absurd."""
    finish: str
    """OpenAI's words; empty when the backend gave no reason."""
    confidence: float | None
    """Mean token probability, where the backend gave log-probabilities."""
    choices: list[dict[str, Any]]
    """As in a chat completion, parsed; each has a message."""
    content_type: str = "application/json"

    @property
    def text(self) -> str:
        """Everything generated that costs tokens: content, reasoning, refusal, tool names and arguments."""
        return "\n".join(generated_text(choice["message"]) for choice in self.choices)
