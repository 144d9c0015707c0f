"""Reads messages as turns, and writes a message with shortened text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

import orjson

from gateway.dialects.requests.asides import has_asides, in_parts
from gateway.domain.attachment import FILE_PARTS
from gateway.domain.request import Role, Turn
from gateway.errors import BadRequest

Block = dict[str, Any]

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
"""Role of a message → role of its turn. A message with an unknown role becomes a `user` turn, and the message is sent
to the backend unchanged."""
_HOLDERS = frozenset({"tool_result", "search_result"})
"""Blocks that contain other blocks."""
_TEXTS = frozenset({"text"})
THINKING = frozenset({"thinking", "redacted_thinking"})
_OF_MESSAGES = frozenset({"content"})
_OF_BLOCKS = {
    "text": frozenset({"type", "text", "cache_control"}),
    "tool_use": frozenset({"type", "name", "input", "cache_control"}),
    "tool_result": frozenset({"type", "content", "is_error", "cache_control"}),
}


_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
"""Matches texts that Claude Code adds to messages."""


def read_turns(system: Any, messages: Any, known: Sequence[Turn] = ()) -> list[Turn]:
    """Read the turns: the system prompt, if any, and each message. `known`: the turns of the first messages, already
    read for an earlier request. Raises BadRequest with the location of the error."""
    turns: list[Turn] = []
    if system:
        text = system if type(system) is str else _joined(_blocks(system, "system"))
        turns.append(Turn(-1, "system", text, asides=in_parts(system, _TEXTS, "image")))
    if type(messages) is not list or not messages:
        raise BadRequest("messages must be an array with at least one message.", param="messages")
    new = enumerate(messages[len(known) :], len(known))
    return [*turns, *known, *(_turn(index, message) for index, message in new)]


def has_images(messages: list[Block]) -> bool:
    """Whether any of the messages contains an image. The messages must have been checked by `read_turns`."""
    contents = [message["content"] for message in messages if type(message["content"]) is list]
    return any(block["type"] == "image" for content in contents for block, _ in _blocks(content, ""))


def shortened(message: Block, text: str) -> Block:
    """A copy of `message` with shortened text. `text`: the text of the whole message after a part in its middle was
    left out. Each tool result keeps those parts of its own text that are still in `text`."""
    copy: Block = orjson.loads(orjson.dumps(message))
    places = [(copy, "content")] if type(copy["content"]) is str else list(_texts(_blocks(copy["content"], "")))
    whole = "\n".join([block[key] for block, key in places])
    head = _common_prefix(whole, text)
    tail = _common_prefix(whole[head:][::-1], text[head:][::-1])
    marker, at = text[head : len(text) - tail], 0
    for block, key in places:
        end = at + len(block[key])
        if end >= head and at <= len(whole) - tail:
            left, right = whole[at : max(at, head)], whole[max(at, len(whole) - tail) : end]
            block[key], marker = f"{left}{marker}{right}", ""
        at = end + 1
    _drop_empty(copy)
    return copy


def without_thinking(message: Block) -> Block:
    """`message` without its thinking blocks."""
    content = message["content"]
    if type(content) is not list or not any(block.get("type") in THINKING for block in content):
        return message
    return {**message, "content": [block for block in content if block.get("type") not in THINKING]}


def _common_prefix(one: str, other: str) -> int:
    """Length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _turn(index: int, message: Any) -> Turn:
    where = f"messages[{index}]"
    if type(message) is not dict:
        raise BadRequest(f"{where} must be an object.", param=where)
    role, content = message.get("role"), message.get("content")
    if type(role) is not str:
        raise BadRequest(f"{where}.role must be a string such as 'user'.", param=f"{where}.role")
    kind = _ROLES.get(role, "user")
    if type(content) is str:
        return Turn(index, kind, content, asides=has_asides(message, _OF_MESSAGES))
    if type(content) is not list:
        raise BadRequest(f"{where}.content must be a string or an array of content blocks.", param=f"{where}.content")
    blocks = _blocks(content, f"{where}.content")
    calls, results, images, files = [], [], 0, 0
    asides = (len(message) > 2 or role not in _ROLES) and has_asides(message, _OF_MESSAGES)
    for block, place in blocks:
        form = block["type"]
        if form == "tool_use":
            calls.append(_id(block, "id", place))
        elif form == "tool_result":
            results.append(_id(block, "tool_use_id", place))
        elif form == "image":
            images += 1
            continue
        elif form in FILE_PARTS:
            files += bool(not _is_text(block) or block.get("title") or block.get("context"))
            continue
        if not asides:
            known = _OF_BLOCKS.get(form)
            asides = known is None or has_asides(block, known)
    if results and all(block["type"] == "tool_result" for block in content):
        kind = "tool"
    instructs = bool(results) and kind == "user" and _instructs(content)
    return Turn(index, kind, _joined(blocks), tuple(calls), tuple(results), images, files, asides, instructs)


def _instructs(content: list[Block]) -> bool:
    """Whether the message contains a user's text. Tool results and texts that a coding agent has added do not count."""
    return any(block["type"] == "text" and _without_reminders(block["text"]).strip() for block in content)


def _without_reminders(text: str) -> str:
    """Return `text` without the reminders that a coding agent has added.

    Text after the last end mark of a reminder is not searched. Otherwise, each start mark there would cause a search to
    the end of the text.
    """
    before, end, after = text.rpartition("</system-reminder>")
    return _REMINDER.sub("", before + end) + after


def _id(block: Block, name: str, where: str) -> str:
    value = block.get(name)
    if type(value) is not str:
        raise BadRequest(f"{where}.{name} must be a string.", param=f"{where}.{name}")
    return value


def _joined(blocks: list[tuple[Block, str]]) -> str:
    return "\n".join([block[key] for block, key in _texts(blocks)])


def _texts(blocks: list[tuple[Block, str]]) -> Iterator[tuple[Block, str]]:
    """Yield the places of all texts in `blocks`. A place is an object and the key of the text in this object."""
    for block, _ in blocks:
        if block["type"] == "text":
            yield block, "text"
        elif block["type"] == "tool_result" and type(block.get("content")) is str:
            yield block, "content"
        elif _is_text(block):
            yield block["source"], "data"


def _blocks(content: Any, where: str) -> list[tuple[Block, str]]:
    """Each block of a message with its location in the request. A block comes before the blocks that it contains.
    Raises BadRequest with the location of an error."""
    found: list[tuple[Block, str]] = []
    if type(content) is not list:
        raise BadRequest(f"{where} must be a string or an array of content blocks.", param=where)
    for number, block in enumerate(content):
        place = f"{where}[{number}]"
        if type(block) is not dict or type(form := block.get("type")) is not str:
            raise BadRequest(f"{place} must be an object with a type.", param=place)
        if form == "text" and type(block.get("text")) is not str:
            raise BadRequest(f"{place}.text must be a string.", param=f"{place}.text")
        found.append((block, place))
        if form in _HOLDERS and type(inner := block.get("content")) not in (str, NoneType):
            found += _blocks(inner, f"{place}.content")
    return found


def _is_text(block: Block) -> bool:
    """Whether the block is a plain text document."""
    source = block.get("source")
    return type(source) is dict and source.get("type") == "text" and type(source.get("data")) is str


def _drop_empty(holder: Block) -> None:
    """Remove empty text blocks, which Anthropic rejects."""
    content = holder.get("content")
    if type(content) is list:
        for block in content:
            _drop_empty(block)
        holder["content"] = [block for block in content if block.get("text") != ""]
