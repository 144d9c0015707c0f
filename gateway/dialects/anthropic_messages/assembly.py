"""Assembles the events of a stream into the message that a plain call would have returned."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.assembly import MAX_BYTES

_BEGINNING = 64 * 2**10
"""Characters kept of an answer that is too long to be kept whole."""
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Type of a delta → the field whose text is joined."""
_REPLACES = {"signature_delta": ("signature",), "compaction_delta": ("content", "encrypted_content")}
"""Type of a delta → the fields of the block that it sets."""


class MessageAssembly:
    """Feed it events in their order; ask any time. Of what it does not understand no message is made."""

    def __init__(self) -> None:
        self.usage: dict[str, Any] = {}
        """As the backend counts; a later event overrides what it names."""
        self._message: dict[str, Any] | None = None
        self._blocks: list[_Block] = []
        self._ended = False
        self._understood = True
        self._size = 0
        self._beginning: str | None = None
        self._gone = 0
        """Characters that were counted and let go."""

    def add(self, said: dict[str, Any], size: int) -> None:
        """An event, parsed, that was `size` bytes."""
        try:
            self._add(said)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self._understood = False
        self._size += size
        self._bound()

    def say(self, index: int, field: str, text: bytes) -> None:
        """More text of a block, as the inside of a JSON string; `field` as the deltas call it."""
        try:
            self._blocks[index].texts.append((field, orjson.loads(b'"%b"' % text)))
        except (IndexError, orjson.JSONDecodeError):
            self._understood = False
        self._size += len(text)
        self._bound()

    def _add(self, said: dict[str, Any]) -> None:
        kind = said["type"]
        if kind == "message_start":
            self._message = said["message"]
            self.count(said["message"].get("usage"))
        elif kind == "content_block_start":
            self._blocks.append(_Block(said["content_block"]))
        elif kind == "content_block_delta":
            self._understood &= self._blocks[said["index"]].add(said["delta"])
        elif kind == "message_delta":
            self._last(said)
        elif kind == "message_stop":
            self._ended = True

    def _last(self, said: dict[str, Any]) -> None:
        self.count(said.get("usage"))
        beside = {name: value for name, value in said.items() if name not in ("type", "delta", "usage")}
        told = said["delta"] if said["delta"].get("container") else {**said["delta"], "container": None}
        for name, value in {**beside, **told}.items():
            if self._message is not None and (value is not None or name.startswith("stop_")):
                self._message[name] = value

    def count(self, usage: Any) -> None:
        """Counts are cumulative, and a later event may leave out what it does not change."""
        if type(usage) is dict:
            self.usage |= {name: value for name, value in usage.items() if value is not None}

    def _bound(self) -> None:
        if self._size <= MAX_BYTES:
            return
        text = self._text()
        if self._beginning is None:
            self._beginning = text[:_BEGINNING]
        self._gone += len(text)
        self._blocks = [_Block({}) for _ in self._blocks]
        self._size = 0

    @property
    def characters(self) -> int:
        return self._gone + len(self._text())

    def text(self) -> str:
        """Thinking, text, names and arguments of calls; only the beginning when it is long."""
        return self._text() if self._beginning is None else self._beginning

    def _text(self) -> str:
        return "\n".join(text for block in self._blocks if (text := block.text()))

    def message(self) -> bytes | None:
        """None when it is not whole, not understood or too large."""
        if self._message is None or not self._ended or not self._understood or self._beginning is not None:
            return None
        try:
            content = [block.whole() for block in self._blocks]
            rendered = orjson.dumps({**self._message, "content": content, "usage": self.usage})
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            return None
        return rendered if len(rendered) <= MAX_BYTES else None


class _Block:
    """A content block as it grows."""

    def __init__(self, begun: dict[str, Any]) -> None:
        self._begun = dict(begun)
        self.texts: list[tuple[str, str]] = []
        """Field and piece, in order."""

    def add(self, delta: dict[str, Any]) -> bool:
        """False for a delta that it does not know how to take in."""
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
        said = "".join([text for _, text in self.texts])
        begun = self._begun
        told = begun.get("name") if begun.get("type") == "tool_use" else begun.get("text") or begun.get("thinking")
        if type(told) is not str or not told:
            return said
        return f"{told}\n{said}".rstrip("\n") if begun.get("type") == "tool_use" else told + said

    def whole(self) -> dict[str, Any]:
        """Raises JSONDecodeError when the input of a call is no JSON."""
        block = dict(self._begun)
        for field in ("text", "thinking"):
            if texts := [text for name, text in self.texts if name == field]:
                block[field] = (block.get(field) or "") + "".join(texts)
        if given := "".join([text for name, text in self.texts if name == "partial_json"]):
            block["input"] = orjson.loads(given)
        return block
