"""Reads recorded sessions of agents, one JSON object per line. Each session is a sequence of requests that the client
sent."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

MOST_OUTPUT_TOKENS = 32_000
"""Output limit in tokens of every request. Anthropic's API requires a limit, and the recordings contain none."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request of a session, and the recorded facts about the answer."""

    turn: int
    at: float
    """Time of the request, in seconds."""
    body: dict[str, Any]
    output_tokens: int
    reported: dict[str, int] | None
    """The usage that the provider reported: `input_tokens`, `cache_read`, `cache_write`."""
    reset: bool
    """Whether the client began a new history. This happens with the first request, a compaction, or a rewind."""


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    source: str
    api: Literal["anthropic", "openai"]
    model: str
    hidden_tokens: int
    """Tokens of the system prompt and the tools, which are not in the recording. They come before all messages."""
    row: dict[str, Any]

    def requests(self) -> Iterator[SentRequest]:
        """Yield each request of the session. A request contains all messages since the start of the session, or since
        the client last began a new history."""
        messages: list[dict[str, Any]] = []
        head: dict[str, Any] = {"model": self.model, "max_tokens": MOST_OUTPUT_TOKENS}
        if tools := self.row.get("tools"):
            head["tools"] = tools
        system = self.row.get("system")
        if system and self.api == "anthropic":
            head["system"] = system
        for place, turn in enumerate(self.row["turns"]):
            reset = "reset" in turn
            if reset:
                messages = [{"role": "system", "content": system}] if system and self.api == "openai" else []
            messages = [*messages, *turn["append"]]
            yield SentRequest(
                place, turn["t"], {**head, "messages": messages}, turn.get("out", 0), turn.get("usage"), reset
            )


def read_sessions(path: Path) -> Iterator[Session]:
    """Yield the sessions in a file. Raises OSError, and ValueError for a line that is not a session."""
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as lines:
        for line in lines:
            row = orjson.loads(line)
            try:
                yield Session(
                    row["id"], row.get("source", ""), row["api"], row["model"], row.get("hidden_tokens", 0), row
                )
            except (KeyError, TypeError) as error:
                raise ValueError(f"{path}: a line is no recorded session: {error} is missing") from error
