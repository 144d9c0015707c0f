"""Orders interleaved tool calls of a chat stream: one is open, the others wait."""

from __future__ import annotations

from typing import Any

import orjson


class Call:
    """Its name and id, and those pieces of its arguments that were not taken yet."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = self.name = ""
        self._pieces: list[str] = []
        self._taken: list[str] = []

    @property
    def ready(self) -> bool:
        """May it be told? Its name comes first."""
        return bool(self.name)

    @property
    def whole(self) -> bool:
        """Are the arguments an object from brace to brace? An empty one may be but the beginning, on some servers."""
        if not self._taken or not self._taken[-1].rstrip().endswith("}"):
            return False
        try:
            return bool(orjson.loads("".join(self._taken)))
        except orjson.JSONDecodeError:
            return False

    def add(self, said: dict[str, Any]) -> None:
        if type(given := said.get("id")) is str and given:
            self.id = self.id or given
        function = said.get("function")
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
        """The pieces since the last time."""
        pieces, self._pieces = self._pieces, []
        self._taken += pieces
        return pieces


class Calls:
    """In the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._at: dict[int, Call] = {}
        self._done = 0

    @property
    def current(self) -> Call | None:
        """Whose turn it is: the first that is not done."""
        return self._calls[self._done] if self._done < len(self._calls) else None

    @property
    def whole(self) -> bool:
        """Has the current one said all, as far as one can tell?"""
        return self.current is None or self.current.whole

    @property
    def waiting(self) -> bool:
        """Is there one behind the current one?"""
        return self._done + 1 < len(self._calls)

    def done(self) -> None:
        """The current one is told."""
        self._done += 1

    def add(self, said: dict[str, Any]) -> None:
        """A piece of a call, as an element of a delta's `tool_calls`."""
        self._find(said).add(said)

    def _find(self, said: dict[str, Any]) -> Call:
        """By its index. Some servers give none, or the same to several whole calls, which have ids of their own."""
        index, given = said.get("index"), said.get("id")
        if type(index) is not int:
            index = len(self._calls) if given or not self._calls else self._calls[-1].number
        known = self._at.get(index)
        if known is None or (given and known.id and given != known.id):
            known = self._at[index] = Call(len(self._calls))
            self._calls.append(known)
        return known
