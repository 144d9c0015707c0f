"""Reads facts about the turns of a session. From these facts, the gateway decides whether a tool output is still
needed.

The facts are the size of the output, its lines, and the names of files, paths and addresses in the calls that produced
it. Names of tools are not used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import ascii_letters, digits
from typing import Any

import orjson

from gateway.context.attachments.vendors import IMAGE_TOKENS
from gateway.context.estimate import estimate
from gateway.context.measure import TURN_TOKENS
from gateway.domain.request import CompletionRequest, Turn

_WORDS = re.compile(r"[\w.@~/-]+")
"""Matches words, paths, addresses and names of files."""
_PARTED = bytes([byte if chr(byte) in f"{ascii_letters}{digits}_.@~/-" else 32 for byte in range(256)])
"""A table that replaces each ASCII character that cannot be in a word (see `_WORDS`) by a space. This is faster than
the regular expression."""
_MOST_NAMED = 600
"""Maximum characters of a call in which names are searched. Names come before long contents."""
_LONGEST_EXTENSION = 5
NUMBERED = re.compile(r"(?m)^[ \t]*\d+([→\t:|])")
"""Matches a line number that a tool wrote before a line. Group 1 is the character after the number. If one of the first
lines of a text has a number, all lines of the text are taken as numbered."""
_LEAST_LINE = 12
"""Minimum characters of a line. Shorter lines are ignored, because they occur in many texts."""
_CALL_TOKENS = 12
"""Approximate number of tokens of a tool call in addition to its arguments."""
_THINKING = frozenset({"thinking", "redacted_thinking"})
_CHAT_THINKING, _PACKED = b'"thinking_blocks"', b'"encrypted_content"'
_EDGE = 160
"""Number of characters that stay at the beginning of an output, and at its end."""


@dataclass(slots=True, eq=False)
class Output:
    """A turn with tool results. A cut may leave its output out of later requests."""

    place: int
    """Index of the turn in `request.turns`."""
    request: int
    """Number of the request in which the turn was sent for the first time."""
    end: int
    """Number of turns in the last request that did not contain this turn yet. The provider's cache can keep the prompt
    up to this position."""
    tokens: int
    names: frozenset[str]
    lines: frozenset[int] | None = None
    """Hashes of the output's lines; None if they were not read yet."""
    left: frozenset[int] | None = None
    """Hashes of the lines that no later output with a name in common has repeated; None: all lines."""
    quoted: bool = False
    """Whether it is known that a later call repeated a line of this output. An edit of a file does this."""
    quoted_at: int = 1 << 60
    """Index of the first turn with a call that repeated a line of this output, among the calls that were searched."""
    searched: int = 0
    """Number of calls of the session that were searched for lines of this output."""
    inherits: bool | None = None
    """Whether this output counts as quoted, because it repeats a line of an earlier output that was quoted; None if
    this was not decided yet."""
    repeated_at: int = 1 << 60
    """Index of the turn after which later outputs have repeated nearly all lines of this output. The output is then
    left out although it was quoted."""
    earlier: list[int] = field(default_factory=list)
    """Numbers of the earlier outputs that have a name in common with this output. Emptied when `inherits` is
    decided."""
    later: list[int] = field(default_factory=list)
    """Numbers of the later outputs that have a name in common with this output."""
    compared: int = 0
    """Number of outputs in `later` whose lines were compared with the lines of this output."""
    gone: bool = False
    """Whether the output was left out."""


def tokens_of(turn: Turn, calls: str) -> int:
    """Estimated number of tokens of a turn, without its thinking. `calls`: arguments of its tool calls."""
    if turn.calls:
        tokens = estimate(f"{turn.text}\n{calls}") + _CALL_TOKENS * len(turn.calls) + TURN_TOKENS
    else:
        tokens = estimate(turn.text) + TURN_TOKENS
    return tokens + turn.images * IMAGE_TOKENS if turn.images else tokens


def answer_of(request: CompletionRequest, turn: Turn) -> tuple[str, int | None]:
    """Return two facts about an answer: the arguments of its tool calls, one per line, and the tokens of its
    thinking.

    The number of tokens is estimated; None if the answer has no thinking blocks.
    """
    message = request.body[request.input_field][turn.index]
    if type(message) is not dict:
        return "", None
    found: list[str] = []
    content = message.get("content")
    thinking: int | None = None
    for part in content if type(content) is list else ():
        if type(part) is not dict:
            continue
        if (kind := part.get("type")) == "tool_use":
            _strings(part.get("input"), found)
        elif kind in _THINKING:
            thought = part.get("thinking")
            thinking = (thinking or 0) + (estimate(thought) if type(thought) is str else 0)
    if message.get("type") == "function_call":
        _arguments(message, found)
    elif type(calls := message.get("tool_calls")) is list:
        for call in calls:
            if type(call) is dict:
                _arguments(call.get("function"), found)
    return "\n".join(found), thinking


def thinking_between(request: CompletionRequest, first: int, end: int) -> dict[int, int]:
    """Index of a turn → estimated tokens of its thinking blocks, for the turns in `[first, end)`.

    In Anthropic's dialect, thinking is in blocks of the turn. In chat, it is in a separate field of the message. In
    Responses, reasoning items precede the item of the turn.
    """
    if request.dialect == "openai_chat":
        return _thinking_in_chat(request, first, end) if _CHAT_THINKING in request.raw else {}
    if request.dialect == "openai_responses":
        return _thinking_in_responses(request, first, end) if _PACKED in request.raw else {}
    if request.dialect != "anthropic_messages":
        return {}
    found: dict[int, int] = {}
    for place in range(first, end):
        turn = request.turns[place]
        if turn.role == "assistant" and turn.asides and (tokens := answer_of(request, turn)[1]) is not None:
            found[place] = tokens
    return found


def _thinking_in_chat(request: CompletionRequest, first: int, end: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for place in range(first, end):
        blocks = request.body["messages"][request.turns[place].index].get("thinking_blocks")
        if type(blocks) is list and blocks:
            found[place] = sum(estimate(str(block.get("thinking", ""))) for block in blocks if type(block) is dict)
    return found


def _thinking_in_responses(request: CompletionRequest, first: int, end: int) -> dict[int, int]:
    items, found = request.body["input"], dict[int, int]()
    for place in range(first, end):
        at = request.turns[place].index - 1
        while type(items) is list and at >= 0 and items[at].get("type") == "reasoning":
            if items[at].get("encrypted_content"):
                found.setdefault(place, 0)
            at -= 1
    return found


def _arguments(function: Any, found: list[str]) -> None:
    """Append the arguments of a function call in OpenAI's form, which are a JSON text."""
    text = function.get("arguments") if type(function) is dict else None
    if type(text) is str:
        try:
            _strings(orjson.loads(text), found)
        except orjson.JSONDecodeError:
            found.append(text)


def _strings(value: Any, found: list[str]) -> None:
    if type(value) is str:
        found.append(value)
    elif type(value) is dict or type(value) is list:
        for each in value.values() if type(value) is dict else value:
            if type(each) is str:
                found.append(each)
            else:
                _strings(each, found)


def names_in(calls: str) -> frozenset[str]:
    """Paths, addresses and names of files in the arguments of a tool call."""
    head = calls[:_MOST_NAMED]
    words = head.encode().translate(_PARTED).decode().split() if head.isascii() else _WORDS.findall(head)
    return frozenset([word.strip(".-") for word in words if "/" in word or ("." in word and _is_file(word))])


def _is_file(word: str) -> bool:
    extension = word.rpartition(".")[2]
    return len(extension) <= _LONGEST_EXTENSION and extension[:1].isalpha()


def lines_in(text: str) -> frozenset[int]:
    """Hashes of the longer lines of a text, without line numbers and indentation."""
    if len(text) < _LEAST_LINE:
        return frozenset()
    parts = text.split("\n")
    if numbered := NUMBERED.search(text, 0, _EDGE):
        after = numbered[1]
        parts = [part.partition(after)[2] or part for part in parts if len(part) >= _LEAST_LINE]
    return frozenset(map(hash, [line for line in map(str.strip, parts) if len(line) >= _LEAST_LINE]))


def omitted(text: str, tokens: int) -> str:
    """The text that replaces an output: its beginning, a note about the part that was left out, and its end.
    `tokens`: tokens of the output.
    """
    head, tail = text[:_EDGE], text[-_EDGE:]
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail else tail
    about = max(1, round(tokens / 50)) * 50
    mark = f"[… about {about} tokens of this output left out by the gateway; repeat the call to read them …]"
    return f"{head}\n{mark}\n{tail}"
