"""Counts the tokens of strings in a conversation that are not counted elsewhere: names, refusals, reasoning, items of
hosted tools. These strings are called asides. Texts, calls and files are counted elsewhere.

The provider decides which asides its model reads. Therefore a budget reserves tokens for all asides, but no space in
the context window is reserved for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.dialects.facts import FACTS
from gateway.domain.attachment import FILE_PARTS, LABELS, MOST_LABEL
from gateway.domain.request import CompletionRequest, Turn

_SEALED = frozenset({"encrypted_content", "signature", "thought_signature", "data"})
"""Keys of values that only a provider can read, because the values are encrypted content in base64."""
_CONTENT = frozenset({"content", "output"})
_HOLDERS = frozenset({"tool_result", "search_result"})
"""Types of parts whose content is a list of parts."""
_STAYS = -1
"""Key for the asides that belong to no turn and are therefore never dropped. The key is no index of a turn."""


def asides(request: CompletionRequest) -> dict[int, int]:
    """The number of bytes of the asides (strings in a conversation that are not counted elsewhere), by turn.

    A key is the index of a turn; if this turn is dropped, these asides are dropped too. The key `_STAYS` has the
    asides that are never dropped.
    """
    found: dict[int, int] = {}
    given = request.body.get(request.input_field)
    turns = request.turns
    begins = 0
    for place, turn in enumerate(turns):
        if turn.asides:
            ends = turn.index + 1 if place + 1 < len(turns) or type(given) is not list else len(given)
            known = turn.counted_asides
            if known is None or known[0] != (begins, ends):
                known = (begins, ends), _of_turn(request, given, turn, begins, ends)
                if turn.index >= 0:
                    turn.counted_asides = known
            for owner, size in known[1].items():
                found[owner] = found.get(owner, 0) + size
        begins = turn.index + 1
    return found


def _of_turn(request: CompletionRequest, given: Any, turn: Turn, begins: int, ends: int) -> dict[int, int]:
    """The bytes of the asides (strings that are not counted elsewhere) of `turn` and of the items around it: index of a
    turn → bytes. The key `_STAYS` has the asides that are never dropped.

    `given`: all items of the conversation. Only the items with indexes in `[begins, ends)` are read.
    """
    found: dict[int, int] = {}
    shown = FACTS[request.dialect].image_part
    for index, message in _messages(request, given, turn, begins, ends):
        if size := _beside(message, turn if index == turn.index else None, shown):
            owner = turn.index if index == turn.index or _goes_along(message, index < turn.index) else _STAYS
            found[owner] = found.get(owner, 0) + size
    return found


def _messages(
    request: CompletionRequest, given: Any, turn: Turn, begins: int, ends: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (index, message) for the message of `turn`, and for the items between the previous turn and `turn`.

    If `turn` is the last turn, also yield the items after it. `given`: all items of the conversation. Only the
    items with indexes in `[begins, ends)` are read.
    """
    if turn.index < 0 and (field := FACTS[request.dialect].system_field):
        yield turn.index, {"content": request.body.get(field)}
    if type(given) is list:
        for index in range(begins, ends):
            yield index, given[index]


def _goes_along(item: Mapping[str, Any], before: bool) -> bool:
    """Whether `item` is dropped together with the turn after it. `before`: whether there is such a turn."""
    return before and item.get("type") == "reasoning"


def _beside(message: dict[str, Any], turn: Turn | None, shown: str) -> int:
    """Number of bytes of all strings in `message`, without the strings that are already counted for `turn`. `shown`:
    the value of `type` in image parts."""
    found = _bytes(message, _elsewhere(message), shown)
    if turn is not None:
        found -= _size(turn.text) + _bytes(made(message))
    return max(0, found)


def _elsewhere(message: dict[str, Any]) -> str:
    """Name of the field of `message` that is already counted as an attachment. Empty if there is none."""
    if message.get("type") == "image_generation_call":
        return "result"
    return "audio" if type(message.get("audio")) is dict else ""


def _bytes(value: Any, without: str = "", shown: str | None = None) -> int:
    """Number of bytes of all strings in `value`. Short labels are not counted. Keys of objects are counted if they are
    too long for a name.

    `without`: a field of `value` to skip. `shown`: must be set if `value` is a message; it is the value of `type` in
    image parts. Images and files of a message are not counted.
    """
    total = 0
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        holder, is_part = waiting.pop()
        if type(holder) is list:
            for held in holder:
                if type(held) is str:
                    total += _size(held)
                elif type(held) is dict or type(held) is list:
                    waiting.append((held, is_part))
            continue
        if is_part and ((kind := holder.get("type")) == shown or (type(kind) is str and kind in FILE_PARTS)):
            total += _size(_text_of(holder))
            continue
        of_parts = shown is not None and (holder is value or (is_part and holder.get("type") in _HOLDERS))
        for name, held in holder.items():
            if without and name == without and holder is value:
                continue
            if type(held) is str:
                if len(held) > MOST_LABEL or name not in LABELS:
                    total += _of_field(name, held)
            elif type(held) is dict or type(held) is list:
                waiting.append((held, of_parts and name in _CONTENT))
            if len(name) > MOST_LABEL:
                total += _size(name)
    return total


def _text_of(part: dict[str, Any]) -> str:
    """The text inside an image part or file part. It is counted with the text of the turn."""
    source = part.get("source")
    text = source.get("data") if type(source) is dict and source.get("type") == "text" else part.get("text")
    return text if type(text) is str else ""


def _of_field(name: str, text: str) -> int:
    if name in _SEALED and text.isascii() and " " not in text:
        return len(text) * 3 // 4
    return _size(text)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def made(message: dict[str, Any]) -> Any:
    """The tool calls in a message, and the thinking before these calls, in the form in which tokens are counted. Empty
    if the message has neither.

    Anthropic's models read earlier thinking again, so it is billed as input. They do not read the signature of the
    thinking, so the signature is left out.
    """
    if message.get("type") == "function_call":
        return message
    calls, content = message.get("tool_calls"), message.get("content")
    if type(calls) is list and calls:
        return calls
    parts = [part for part in content if type(part) is dict] if type(content) is list else ()
    thoughts = [part["thinking"] for part in parts if part.get("type") == "thinking" and part.get("thinking")]
    return thoughts + [part for part in parts if part.get("type") == "tool_use"]
