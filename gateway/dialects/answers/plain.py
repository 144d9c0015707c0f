"""A plain (not streamed) answer: bytes for the client, and the data that the gateway read from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.dialects.openai_chat.message import generated_text
from gateway.domain.money.usage import Usage


@dataclass(slots=True)
class Plain:
    """A plain answer that was read."""

    body: bytes
    """In the client's dialect, ready to send."""
    usage: Usage | None
    """None: the backend reported no usage or an impossible one."""
    finish: str
    """Finish reason in OpenAI's terms; empty if the backend gave none."""
    confidence: float | None
    """Mean token probability; None if the backend sent no log-probabilities."""
    choices: list[dict[str, Any]]
    """As in a chat completion, parsed; each has a message."""
    content_type: str = "application/json"

    @property
    def text(self) -> str:
        """All generated text that is billed: content, reasoning, refusal, tool names and arguments."""
        return "\n".join(generated_text(choice["message"]) for choice in self.choices)
