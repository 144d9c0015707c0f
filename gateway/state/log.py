"""A log that every worker follows from its beginning: how caches in several processes come to know the same things."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from gateway.errors import StateUnavailable
from gateway.state.connection import State
from gateway.state.door import Door

log = logging.getLogger(__name__)

PAGE = 64
"""Entries handled before the loop gets its turn; each may tell of many things."""
PACE_S = 0.1
"""Pause after news: a busy log is read a few times a second, not at every entry."""
BLOCK_S = 1.0
READ_S = 5.0
"""Longest wait for a page that is there."""
RETRY_S = 0.2
_START = "0-0"
_WEIGHT = b"weight"


class IndexLog:
    """A capped stream. One follower per instance, any number of appenders anywhere."""

    def __init__(self, state: State, name: str, *, max_length: int = 200_000) -> None:
        """Above `max_length`, counted in weights by whoever follows and in entries by others, the oldest go."""
        self._state = state
        self._key = state.key("log", name)
        self._max_length = max_length
        self._weights: deque[tuple[str, int]] = deque()
        self._weight = 0
        self._oldest = ""
        """The first entry to keep; empty while there is room."""
        self._cursor = _START
        self._current = asyncio.Event()
        self._counts = {"appended": 0, "handled": 0, "resets": 0, "rejected": 0}

    @property
    def current(self) -> bool:
        """The follower has handled everything there was when it last looked, and state is up."""
        return self._current.is_set() and self._state.healthy

    async def caught_up(self, timeout_s: float) -> None:
        """Wait until the follower has handled what there was. Raises StateUnavailable when that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._current.wait()
        except TimeoutError as error:
            raise StateUnavailable(f"{self._key} was not read to its end within {timeout_s:g} s") from error

    async def append(self, fields: Mapping[str | bytes, bytes], *, weight: int = 1) -> str:
        """The entry's id; `weight` is how much it counts. Raises StateUnavailable."""
        words: list[str | bytes | int] = [word for pair in fields.items() for word in pair]
        if weight != 1:
            words += (_WEIGHT, weight)
        keep = ("MINID", "~", self._oldest) if self._oldest else ("MAXLEN", "~", self._max_length)
        entry: bytes = await self._state.call("XADD", self._key, *keep, "*", *words)
        self._counts["appended"] += 1
        return entry.decode()

    async def follow(self, handle: Callable[[str, dict[bytes, bytes]], None], reset: Callable[[], None]) -> None:
        """Forever: `handle(id, fields)` for every entry in order, history first; `reset()` when what was handled is no
        longer true because the server lost its data, after which everything that it has comes again.

        An entry whose handling raises is logged and passed over.
        """
        epoch = ""
        while True:
            try:
                door = await self._state.dial()
                try:
                    epoch = await self._restart(door, epoch, reset)
                    while self._state.epoch == epoch:
                        await self._page(door, handle)
                finally:
                    self._current.clear()
                    await door.aclose()
            except StateUnavailable as error:
                log.debug("index log %s: %s", self._key, error)
                await asyncio.sleep(RETRY_S)

    async def _restart(self, door: Door, followed: str, reset: Callable[[], None]) -> str:
        """The epoch that is followed from here on."""
        epoch = self._state.epoch
        if not epoch:
            raise StateUnavailable("the epoch is not known yet")
        if (followed and epoch != followed) or await self._fell_back(door):
            self._cursor, self._oldest, self._weight = _START, "", 0
            self._weights.clear()
            self._counts["resets"] += 1
            reset()
        return epoch

    async def _fell_back(self, door: Door) -> bool:
        """The stream ends before what we have handled: a server that came back without its last moments."""
        if self._cursor == _START:
            return False
        (info,) = await door.exchange((("XINFO", "STREAM", self._key),), self._state.timeout_s)
        if isinstance(info, Exception):
            return True  # no such stream any more
        facts = dict(zip(info[::2], info[1::2], strict=False))
        return _order(facts[b"last-generated-id"]) < _order(self._cursor.encode())

    async def _page(self, door: Door, handle: Callable[[str, dict[bytes, bytes]], None]) -> None:
        block = ("BLOCK", int(BLOCK_S * 1000)) if self._current.is_set() else ()
        command = ("XREAD", "COUNT", PAGE, *block, "STREAMS", self._key, self._cursor)
        (reply,) = await door.exchange((command,), BLOCK_S + READ_S)
        if isinstance(reply, Exception):
            raise StateUnavailable(str(reply)) from reply
        entries = reply[0][1] if reply else []
        for entry, words in entries:
            self._handle(entry.decode(), words, handle)
        if len(entries) < PAGE:
            self._current.set()
        else:
            self._current.clear()
        await asyncio.sleep(PACE_S if 0 < len(entries) < PAGE else 0)

    def _handle(self, entry: str, words: list[bytes], handle: Callable[[str, dict[bytes, bytes]], None]) -> None:
        self._cursor = entry
        try:
            fields = dict(zip(words[::2], words[1::2], strict=True))
            self._weigh(entry, int(fields.get(_WEIGHT, 1)))
            handle(entry, fields)
            self._counts["handled"] += 1
        except Exception:
            self._counts["rejected"] += 1
            if self._counts["rejected"] == 1:  # where one is, there may be as many as the log holds
                log.exception("index log %s: entry %s could not be handled", self._key, entry)

    def _weigh(self, entry: str, weight: int) -> None:
        self._weights.append((entry, weight))
        self._weight += weight
        while self._weight > self._max_length and len(self._weights) > 1:
            _, gone = self._weights.popleft()
            self._weight -= gone
            self._oldest = self._weights[0][0]

    def stats(self) -> dict[str, int | float | str]:
        return {"current": int(self.current), **self._counts}


def _order(entry: Any) -> tuple[int, int]:
    """Stream ids compare as two numbers."""
    time_ms, _, number = bytes(entry).partition(b"-")
    return int(time_ms), int(number)
