"""What the scripted provider remembers of one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.domain.money.usage import Usage
from tests.fakes.provider_script import Step


@dataclass(slots=True)
class Exchange:
    """One request as it came and what was sent back; the truth that a ledger is compared with."""

    connection: int
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    json: Any = None
    """The parsed body; None when it is no JSON."""
    step: Step | None = None
    status: int = 0
    usage: Usage | None = None
    """Of the whole answer, true whatever the wire claims; None for anything but an answer."""
    chunks_sent: int = 0
    """Content events that left (1 for a plain answer)."""
    tokens_sent: int = 0
    text_sent: str = ""
    finished: bool = False
    """Everything scripted has been sent."""
    whole: bool = False
    """It was a whole answer, not an error or a cut one."""
    hung_up: bool = False
    """The client closed before the end; `chunks_sent` says after how many."""

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def settled(self) -> bool:
        return self.finished or self.hung_up

    def row(self) -> dict[str, Any]:
        """What a record file keeps of it."""
        return {
            "path": self.path,
            "model": self.json.get("model") if isinstance(self.json, dict) else None,
            "status": self.status,
            "input_tokens": self.usage.all_input if self.usage else 0,
            "output_tokens": self.usage.all_output if self.usage else 0,
            "tokens_sent": self.tokens_sent,
            "text_sent": self.text_sent,
            "finished": self.finished,
            "whole": self.whole,
            "hung_up": self.hung_up,
        }
