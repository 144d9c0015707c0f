"""A plain (not streamed) answer: bytes for the client, and the data that the gateway read from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.dialects.openai_chat.message import generated_text
from gateway.domain.money.usage import Usage


@dataclass(slots=True)
class Plain:
    """A plain answer after it was read."""

    body: bytes
    """The answer in the client's dialect, ready to send."""
    usage: Usage | None
    """The usage; None if the backend reported none or an impossible one."""
    finish: str
    """The finish reason in OpenAI's terms; empty if the backend gave none."""
    confidence: float | None
    """The mean token probability; None if the backend sent no log-probabilities."""
    choices: list[dict[str, Any]]
    """The choices as in a chat completion, parsed. Each has a message."""
    content_type: str = "application/json"

    @property
    def text(self) -> str:
        """All generated text that is billed: content, reasoning, refusal, tool names and arguments."""
        return "\n".join(generated_text(choice["message"]) for choice in self.choices)
