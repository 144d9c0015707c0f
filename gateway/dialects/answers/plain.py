"""A plain (not streamed) answer: the bytes for the client, and the facts that the gateway read from these bytes."""

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
    """The usage of the answer; None if the backend reported no usage or an impossible one."""
    finish: str
    """The finish reason in OpenAI's terms; empty if the backend gave no reason."""
    confidence: float | None
    """The mean token probability; None if the backend sent no log-probabilities."""
    choices: list[dict[str, Any]]
    """The parsed choices, in the format of a chat completion. Each choice has a message."""
    content_type: str = "application/json"

    @property
    def text(self) -> str:
        """All generated text for which the provider charges: content, reasoning, refusal, and the names and arguments
        of tool calls."""
        return "\n".join(generated_text(choice["message"]) for choice in self.choices)
