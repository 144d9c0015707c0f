"""Reads facts about a turn, from which it is decided whether its tool output is needed later: the size of the output,
its lines, and the names in the calls that produced it. The names of tools are not used."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.context.attachments.asides import made
from gateway.context.attachments.vendors import IMAGE_TOKENS
from gateway.context.estimate import estimate
from gateway.context.measure import TURN_TOKENS
from gateway.domain.request import CompletionRequest, Turn

_NAMES = re.compile(r"[\w.@~-]*/[\w.@/~-]*\w|\w[\w-]*\.[A-Za-z]\w{0,4}\b")
"""Matches paths, addresses and names of files."""
_NUMBERED = re.compile(r"(?m)^[ \t]*\d+(?:→|\t|:|\|)")
"""Matches the line numbers that tools write before the lines of a file."""
_MOST_NAMED = 2000
"""Maximum characters of a call in which names are searched. Names come before long contents."""
_LEAST_LINE = 12
"""Minimum characters of a line. Shorter lines are ignored, because they occur in many texts."""
_THINKING = frozenset({"thinking", "redacted_thinking"})
_EDGE = 160
"""Number of characters that stay at the beginning of an output, and at its end."""


@dataclass(slots=True)
class Output:
    """A turn with tool results whose output may be left out of later requests (a cut)."""

    place: int
    """Index of the turn in `request.turns`."""
    request: int
    """Number of the request in which the turn was sent for the first time."""
    end: int
    """Number of turns in the request before that request. The provider's cache can keep the prompt up to this position.
    """
    tokens: int
    names: frozenset[str]
    lines: frozenset[int]
    left: set[int] = field(default_factory=set)
    """Hashes of the lines that were not repeated by any later output with one of the names."""
    quoted: bool = False
    """Whether a later call repeated a line of this output. An edit of a file does this."""
    repeated: bool = False
    """Whether later outputs repeated nearly all lines of this output."""

    @property
    def needed(self) -> bool:
        return self.quoted and not self.repeated


def tokens_of(request: CompletionRequest, turn: Turn, calls: str) -> int:
    """Estimated number of tokens of a turn. The thinking in the turn does not count."""
    return estimate(turn.text) + estimate(calls) + TURN_TOKENS + turn.images * IMAGE_TOKENS


def thinking_of(request: CompletionRequest, turn: Turn) -> int | None:
    """Estimated number of tokens of the thinking blocks in a turn; None if the turn has no thinking blocks."""
    if not turn.asides and not turn.calls and turn.role != "assistant":
        return None
    content = _message(request, turn).get("content")
    blocks = [part for part in content if type(part) is dict] if type(content) is list else []
    thoughts = [part.get("thinking", "") for part in blocks if part.get("type") in _THINKING]
    return sum(estimate(thought) for thought in thoughts) if thoughts else None


def calls_of(request: CompletionRequest, turn: Turn) -> str:
    """The tool calls of a turn as text, with their line breaks."""
    if not turn.calls:
        return ""
    calls: Any = made(_message(request, turn))
    if type(calls) is list:
        calls = [part for part in calls if type(part) is dict]
    text = orjson.dumps(calls).decode()
    return text.replace("\\\\n", "\n").replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')


def names_in(calls: str) -> frozenset[str]:
    return frozenset(_NAMES.findall(calls[:_MOST_NAMED]))


def lines_in(text: str) -> frozenset[int]:
    """Hashes of the longer lines of a text, without line numbers and indentation."""
    lines = [line.strip() for line in _NUMBERED.sub("", text).split("\n")]
    return frozenset([hash(line) for line in lines if len(line) >= _LEAST_LINE])


def omitted(text: str, tokens: int) -> str:
    """The text that replaces an output: the beginning and the end of the output, and between them a note about the part
    that was left out. `tokens`: tokens of the output."""
    head, tail = text[:_EDGE], text[-_EDGE:]
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail else tail
    about = max(1, round(tokens / 50)) * 50
    mark = f"[… about {about} tokens of this output left out by the gateway; repeat the call to read them …]"
    return f"{head}\n{mark}\n{tail}"


def _message(request: CompletionRequest, turn: Turn) -> dict[str, Any]:
    message = request.body[request.input_field][turn.index] if turn.index >= 0 else None
    return message if type(message) is dict else {}
