"""Ends a Responses stream early. Writes the last events of an incomplete response. They contain the output that was
sent before."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.dialects.openai_responses.response_object import Item, ended, shown_usage, text_part
from gateway.domain.money.usage import Usage

_NUMBER = re.compile(rb'"sequence_number": ?(\d{1,9})\b')


class PartialResponse:
    """The response object from the first event, and the characters of text before each output item."""

    def __init__(self) -> None:
        self._response: Item = {}
        self._items: list[tuple[int, Item]] = []

    def created(self, response: Any) -> None:
        """Store the response object from the event that begins the stream."""
        self._response = response if type(response) is dict else {}

    def added(self, item: Any, characters: int) -> None:
        """Called when an output item begins. `characters`: number of characters of text before the item."""
        if type(item) is dict:
            self._items.append((characters, item))

    def cut(self, text: str, last: bytes, delivered: Usage) -> bytes:
        """The events that end the stream. `text`: all text that was sent. `delivered`: usage of the part that was
        sent.

        `last`: the latest events that were sent; their sequence number is continued.
        """
        number = max((int(found) for found in _NUMBER.findall(last)), default=delivered.all_output) + 1
        ends = [*(begin for begin, _ in self._items[1:]), len(text)]
        output = [_so_far(item, text[begin:end]) for (begin, item), end in zip(self._items, ends, strict=False)]
        closing = b""
        if output:
            done = {"type": "response.output_item.done", "output_index": len(output) - 1, "item": output[-1]}
            closing, number = _event(done, number), number + 1
        whole = ended({**self._response, "usage": shown_usage(delivered)}, "length", delivered, output, 0)
        return closing + _event({"type": "response.incomplete", "response": whole}, number)


def _so_far(item: Item, text: str) -> Item:
    match item.get("type"):
        case "message":
            return {**item, "status": "incomplete", "content": [text_part(text, [])] if text else []}
        case "function_call":
            return {**item, "status": "incomplete", "arguments": text.removeprefix(f"\n{item.get('name')}\n")}
        case "custom_tool_call":
            return {**item, "status": "incomplete", "input": text.removeprefix(f"\n{item.get('name')}\n")}
        case "reasoning":
            return item
    return {**item, "status": "incomplete"}


def _event(event: Item, number: int) -> bytes:
    kind: str = event["type"]
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({**event, "sequence_number": number}))
