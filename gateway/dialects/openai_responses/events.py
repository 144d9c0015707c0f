"""Writes the events of a Responses stream. Numbers the events, and announces, fills and closes output items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.dialects.openai_responses.response_object import (
    Item,
    call_item,
    custom_item,
    input_of,
    message_item,
    reasoning_item,
    refusal_part,
    text_part,
)
from gateway.dialects.openai_responses.tools import Tool
from gateway.dialects.streams.text_run import encoded


class Events:
    """Numbers the events, beginning with 0, and stores the output items by their index."""

    def __init__(self) -> None:
        self.output: list[Item] = []
        self._next = 0

    def event(self, kind: str, **fields: Any) -> bytes:
        """An event of the type `kind` with the given fields."""
        number, self._next = self._next, self._next + 1
        data = orjson.dumps({"type": kind, **fields, "sequence_number": number})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def piece(self, before: bytes, text: str, after: bytes) -> bytes:
        """A delta event with `text`. `before`, `after`: the bytes of the event around the text, which many events have
        in common."""
        number, self._next = self._next, self._next + 1
        return b'%b%b%b,"sequence_number":%d}\n\n' % (before, orjson.dumps(text), after, number)

    def pieces(self, before: bytes, texts: list[str], after: bytes) -> bytes:
        """A delta event for each of `texts`, of which there is at least one. `before`, `after`: the bytes of each event
        around its text."""
        first, self._next = self._next, self._next + len(texts)
        event = b'%b"%b"%b,"sequence_number":%d}\n\n'
        return b"".join([event % (before, text, after, place) for place, text in enumerate(encoded(texts), first)])

    def place(self, item: Item) -> int:
        """Add an item to the output; returns its index."""
        self.output.append(item)
        return len(self.output) - 1

    def added(self, place: int) -> bytes:
        """The event that announces the item at `place`."""
        return self.event("response.output_item.added", output_index=place, item=self.output[place])

    def done(self, place: int, item: Item) -> bytes:
        """Store the finished item at `place`. Returns the event that closes the item."""
        self.output[place] = item
        return self.event("response.output_item.done", output_index=place, item=item)


def _head(kind: str, where: dict[str, Any]) -> bytes:
    """The bytes of an event of type `kind` before its field `delta`."""
    head = orjson.dumps({"type": kind, **where})
    return b'event: %b\ndata: %b,"delta":' % (kind.encode(), head[:-1])


class Message:
    """A message item: the text or the refusal of the assistant."""

    def __init__(self, events: Events, item_id: str) -> None:
        self._events, self._id = events, item_id
        self.place = events.place(message_item(item_id, [], "in_progress"))
        self._parts: list[Item] = []
        self._kind = ""
        self._texts: list[str] = []
        self._logprobs: list[Item] = []
        self._delta = b""

    def open(self) -> bytes:
        return self._events.added(self.place)

    def text(self, piece: str, logprobs: Sequence[Item]) -> bytes:
        opened = b"" if self._kind == "output_text" else self._open_part("output_text")
        if not piece:
            return opened
        self._texts.append(piece)
        if not logprobs:
            return opened + self._events.piece(self._delta, piece, b',"logprobs":[]')
        self._logprobs += logprobs
        return opened + self._events.piece(self._delta, piece, b',"logprobs":' + orjson.dumps(logprobs))

    def more(self, texts: list[str]) -> bytes | None:
        """A delta event for each of `texts`. None if the part in progress is not text."""
        if self._kind != "output_text":
            return None
        self._texts += texts
        return self._events.pieces(self._delta, texts, b',"logprobs":[]')

    def refuse(self, piece: str) -> bytes:
        opened = self._open_part("refusal") if self._kind != "refusal" else b""
        self._texts.append(piece)
        return opened + self._events.piece(self._delta, piece, b"")

    def close(self, status: str) -> bytes:
        closed = self._close_part()
        return closed + self._events.done(self.place, message_item(self._id, self._parts, status))

    @property
    def _where(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self.place, "content_index": len(self._parts)}

    def _open_part(self, kind: str) -> bytes:
        closed = self._close_part()
        self._kind = kind
        self._delta = _head(f"response.{kind}.delta", self._where)
        part = text_part("", []) if kind == "output_text" else refusal_part("")
        return closed + self._events.event("response.content_part.added", **self._where, part=part)

    def _close_part(self) -> bytes:
        if not self._kind:
            return b""
        where, text = self._where, "".join(self._texts)
        if self._kind == "output_text":
            part = text_part(text, self._logprobs)
            closed = self._events.event("response.output_text.done", **where, text=text, logprobs=self._logprobs)
        else:
            part = refusal_part(text)
            closed = self._events.event("response.refusal.done", **where, refusal=text)
        self._kind, self._texts, self._logprobs = "", [], []
        self._parts.append(part)
        return closed + self._events.event("response.content_part.done", **where, part=part)


class Reasoning:
    """A reasoning item. It contains the model's thinking as a single summary, and the thinking blocks that the vendor
    signed."""

    def __init__(self, events: Events, item_id: str) -> None:
        self._events, self._id = events, item_id
        self.place = events.place(reasoning_item(item_id, "", []))
        self._where = {"item_id": item_id, "output_index": self.place, "summary_index": 0}
        self._texts: list[str] = []
        self._blocks: list[Item] = []
        self._delta = _head("response.reasoning_summary_text.delta", self._where)

    def open(self) -> bytes:
        return self._events.added(self.place)

    def text(self, piece: str) -> bytes:
        opened = b""
        if not self._texts:
            part = {"type": "summary_text", "text": ""}
            opened = self._events.event("response.reasoning_summary_part.added", **self._where, part=part)
        self._texts.append(piece)
        return opened + self._events.piece(self._delta, piece, b"")

    def sign(self, blocks: list[Item]) -> None:
        self._blocks += blocks

    def close(self) -> bytes:
        text, closed = "".join(self._texts), b""
        if self._texts:
            part = {"type": "summary_text", "text": text}
            closed = self._events.event("response.reasoning_summary_text.done", **self._where, text=text)
            closed += self._events.event("response.reasoning_summary_part.done", **self._where, part=part)
        return closed + self._events.done(self.place, reasoning_item(self._id, text, self._blocks))


class Call:
    """A function call item. The pieces of its arguments are written as they arrive."""

    def __init__(self, events: Events, item_id: str, call_id: str, tool: Tool) -> None:
        self._events, self._id, self._call_id, self._tool = events, item_id, call_id, tool
        self.place = events.place(self._item("", "in_progress"))
        self._where = {"item_id": item_id, "output_index": self.place}
        self._texts: list[str] = []
        self._delta = _head("response.function_call_arguments.delta", self._where)

    def _item(self, text: str, status: str) -> Item:
        return call_item(self._id, self._call_id, self._tool, text, status)

    def open(self) -> bytes:
        return self._events.added(self.place)

    def arguments(self, piece: str) -> bytes:
        self._texts.append(piece)
        return self._events.piece(self._delta, piece, b"")

    @property
    def whole(self) -> bool:
        """Whether the arguments are complete JSON."""
        try:
            orjson.loads("".join(self._texts))
        except orjson.JSONDecodeError:
            return False
        return True

    def close(self, status: str) -> bytes:
        text = "".join(self._texts)
        done = "response.function_call_arguments.done"
        closed = self._events.event(done, **self._where, arguments=text, name=self._tool.name)
        return closed + self._events.done(self.place, self._item(text, status))


class CustomCall(Call):
    """A custom tool call item. Its text is known only when the JSON around it is complete."""

    def _item(self, text: str, status: str) -> Item:
        return custom_item(self._id, self._call_id, self._tool, text, status)

    def arguments(self, piece: str) -> bytes:
        self._texts.append(piece)
        return b""

    def close(self, status: str) -> bytes:
        text = input_of("".join(self._texts))
        events = self._events
        written = events.event("response.custom_tool_call_input.delta", **self._where, delta=text)
        written += events.event("response.custom_tool_call_input.done", **self._where, input=text)
        return written + events.done(self.place, self._item(text, status))
