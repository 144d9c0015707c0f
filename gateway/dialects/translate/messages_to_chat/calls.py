"""Puts the tool calls of a chat stream in order.

In a chat stream, the pieces of several calls may be mixed. Here, one call is written after another, and the pieces of
later calls wait.
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.message import signature_of


class Call:
    """One call: name, id, Google's signature, and the pieces of its arguments that `take` has not returned yet."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = self.name = self.signature = ""
        self._pieces: list[str] = []
        self._taken: list[str] = []

    @property
    def ready(self) -> bool:
        """Whether the call can be announced to the client, which means that the name of the function is known."""
        return bool(self.name)

    @property
    def whole(self) -> bool:
        """Whether the arguments are a complete JSON object. False for an empty object, which some servers send
        first."""
        if not self._taken or not self._taken[-1].rstrip().endswith("}"):
            return False
        try:
            return bool(orjson.loads("".join(self._taken)))
        except orjson.JSONDecodeError:
            return False

    def add(self, piece: dict[str, Any]) -> None:
        """Add a piece of the call."""
        if type(value := piece.get("id")) is str and value:
            self.id = self.id or value
        self.signature = self.signature or signature_of(piece)
        function = piece.get("function")
        if type(function) is not dict:
            return
        if type(name := function.get("name")) is str and name:
            self.name = self.name or name
        arguments = function.get("arguments")
        if type(arguments) is dict:
            arguments = orjson.dumps(arguments).decode()
        if type(arguments) is str and arguments:
            self._pieces.append(arguments)

    def take(self) -> list[str]:
        """The pieces that were added since the last call of `take`."""
        pieces, self._pieces = self._pieces, []
        self._taken += pieces
        return pieces


class Calls:
    """The calls of one stream, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._at: dict[int, Call] = {}
        self._done = 0

    @property
    def current(self) -> Call | None:
        """The first call that has not been written completely; None if all calls have been written."""
        return self._calls[self._done] if self._done < len(self._calls) else None

    @property
    def whole(self) -> bool:
        """Whether the current call appears to be complete. True if there is no current call."""
        return self.current is None or self.current.whole

    @property
    def waiting(self) -> bool:
        """Whether another call is waiting until the current call has been written completely."""
        return self._done + 1 < len(self._calls)

    def done(self) -> None:
        """Go to the next call, because the current call has been written completely."""
        self._done += 1

    def add(self, piece: dict[str, Any]) -> None:
        """Add a piece of a call. `piece`: an element of the field `tool_calls` of a delta."""
        self._find(piece).add(piece)

    def _find(self, piece: dict[str, Any]) -> Call:
        """Find the call to which `piece` belongs, or create it. The index of `piece` decides. If `piece` has no index,
        or if several calls have the same index, the id decides."""
        index, value = piece.get("index"), piece.get("id")
        if type(index) is not int:
            index = len(self._calls) if value or not self._calls else self._calls[-1].number
        known = self._at.get(index)
        if known is None or (value and known.id and value != known.id):
            known = self._at[index] = Call(len(self._calls))
            self._calls.append(known)
        return known
