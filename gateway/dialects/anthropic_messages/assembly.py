"""Assembles the events of a stream into the message that a plain call would have returned."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.assembly import BEGINNING, MAX_BYTES
from gateway.dialects.streams.text_run import mended

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Type of a delta → the field whose texts are concatenated."""
_REPLACES = {"signature_delta": ("signature",), "compaction_delta": ("content", "encrypted_content")}
"""Type of a delta → names of the fields of the block that the delta replaces."""


class MessageAssembly:
    """Assembles a message from events, added in order. The message so far can be read at any time. After an event of
    unknown type, there is no message any more."""

    def __init__(self) -> None:
        self.usage: dict[str, Any] = {}
        """The usage in Anthropic's format. Values of later events replace values of earlier events."""
        self._message: dict[str, Any] | None = None
        self._blocks: list[_Block] = []
        self._ended = False
        self._understood = True
        self._size = 0
        self._beginning: str | None = None
        self._discarded = 0
        """Number of characters that were counted and discarded."""

    def add(self, event: dict[str, Any], size: int) -> None:
        """Add a parsed event of `size` bytes."""
        try:
            self._add(event)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self._understood = False
        self._size += size
        if self._size > MAX_BYTES:
            self._discard()

    def add_text(self, index: int, field: str, text: bytes) -> None:
        """Add text to the block with this `index`. `text`: the inside of a JSON string. `field`: the name of the text's
        field in the delta."""
        try:
            decoded = orjson.loads(b'"%b"' % text)
        except orjson.JSONDecodeError:
            self._understood = False
            decoded = orjson.loads(b'"%b"' % mended(text))
        self._block(index).texts.append((field, decoded))
        self._size += len(text)
        if self._size > MAX_BYTES:
            self._discard()

    def _add(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "message_start":
            self._message = event["message"]
            self.count(event["message"].get("usage"))
        elif kind == "content_block_start":
            self._understood &= event["index"] == len(self._blocks)
            self._blocks.append(_Block(event["content_block"]))
        elif kind == "content_block_delta":
            known = self._block(event["index"]).add(event["delta"])
            self._understood &= known
        elif kind == "message_delta":
            self._last(event)
        elif kind == "message_stop":
            self._ended = True

    def _block(self, index: object) -> _Block:
        """The block with this `index`. If no such block has begun, the last block, because the text must be counted."""
        if type(index) is int and 0 <= index < len(self._blocks):
            return self._blocks[index]
        self._understood = False
        if not self._blocks:
            self._blocks.append(_Block({}))
        return self._blocks[-1]

    def _last(self, event: dict[str, Any]) -> None:
        self.count(event.get("usage"))
        others = {name: value for name, value in event.items() if name not in ("type", "delta", "usage")}
        start = event["delta"] if event["delta"].get("container") else {**event["delta"], "container": None}
        for name, value in {**others, **start}.items():
            if self._message is not None and (value is not None or name.startswith("stop_")):
                self._message[name] = value

    def count(self, usage: Any) -> None:
        """Merge `usage` into the usage so far. Counts are cumulative: a later count replaces an earlier one."""
        if type(usage) is dict:
            self.usage |= {name: value for name, value in usage.items() if value is not None}

    def _discard(self) -> None:
        text = self._text()
        if self._beginning is None:
            self._beginning = text[:BEGINNING]
        self._discarded += len(text)
        self._blocks = [_Block({})]
        self._size = 0

    @property
    def characters(self) -> int:
        """Number of characters of generated text."""
        return self._discarded + len(self._text())

    def text(self) -> str:
        """The generated text so far: thinking, text, tool names and arguments. For a long answer, only its
        beginning."""
        return self._text() if self._beginning is None else self._beginning

    def _text(self) -> str:
        return "\n".join(text for block in self._blocks if (text := block.text()))

    def message(self) -> bytes | None:
        """The complete message. None if the message is unfinished, contains events of unknown type or is too large."""
        if self._message is None or not self._ended or not self._understood or self._beginning is not None:
            return None
        try:
            content = [block.whole() for block in self._blocks]
            rendered = orjson.dumps({**self._message, "content": content, "usage": self.usage})
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            return None
        return rendered if len(rendered) <= MAX_BYTES else None


class _Block:
    """One content block, as far as it was received."""

    def __init__(self, begun: dict[str, Any]) -> None:
        self._begun = dict(begun)
        self.texts: list[tuple[str, str]] = []
        """Pairs of a field's name and a piece of the field's text, in order."""

    def add(self, delta: dict[str, Any]) -> bool:
        """Add a delta. Returns False if the type of the delta is unknown."""
        kind = delta["type"]
        if field := _TEXTS.get(kind):
            if type(text := delta[field]) is not str:
                return False
            self.texts.append((field, text))
        elif kind == "citations_delta":
            self._begun["citations"] = [*(self._begun.get("citations") or ()), delta["citation"]]
        elif kind in _REPLACES:
            self._begun |= {field: delta.get(field) for field in _REPLACES[kind]}
        else:
            return False
        return True

    def text(self) -> str:
        text = "".join([text for _, text in self.texts])
        begun = self._begun
        start = begun.get("name") if begun.get("type") == "tool_use" else begun.get("text") or begun.get("thinking")
        if type(start) is not str or not start:
            return text
        return f"{start}\n{text}".rstrip("\n") if begun.get("type") == "tool_use" else start + text

    def whole(self) -> dict[str, Any]:
        """The complete block. Raises JSONDecodeError if a tool call's input is not JSON."""
        block = dict(self._begun)
        for field in ("text", "thinking"):
            if texts := [text for name, text in self.texts if name == field]:
                block[field] = (block.get(field) or "") + "".join(texts)
        if value := "".join([text for name, text in self.texts if name == "partial_json"]):
            block["input"] = orjson.loads(value)
        return block
