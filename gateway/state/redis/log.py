"""A log on the state server that every worker follows from its beginning."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gateway.errors import StateUnavailable
from gateway.state.redis.commands import Transport
from gateway.state.redis.connection import State

log = logging.getLogger(__name__)

PAGE = 64
"""Maximum number of entries that are read at a time."""
SLICE_S = 0.0005
"""Maximum seconds for which entries are handled before other tasks run. The entry in progress is always finished."""
PACE_S = 0.1
"""Seconds to pause after reading new entries, so that a busy log is read at most ten times a second."""
BLOCK_S = 1.0
READ_S = 5.0
"""Maximum seconds to wait for a page of existing entries."""
RETRY_S = 0.2
_START = "0-0"
_WEIGHT = b"weight"


class Position(NamedTuple):
    """A follower's position in the log, and the data that are needed to continue there."""

    epoch: str
    """Epoch of the server whose log is followed."""
    cursor: str
    weights: list[tuple[str, int]]
    """(Id, weight) of each entry that counts towards the maximum length."""


class Replacement(NamedTuple):
    """The entry that replaces another entry of the log."""

    fields: Mapping[str | bytes, bytes] | None
    """The fields of the new entry; None: the old entry is removed and not replaced."""
    weight: int = 1


class IndexLog:
    """A stream of limited length. Each instance has at most one follower; any instance may append."""

    def __init__(self, state: State, name: str, *, max_length: int = 200_000) -> None:
        """`max_length`: maximum length of the log; beyond it, the oldest entries are removed.

        An instance that follows the log knows the weight of each entry, and compares the sum of the weights with the
        maximum. Other instances compare the number of entries.
        """
        self._state = state
        self._key = state.key("log", name)
        self._max_length = max_length
        self._weights: deque[tuple[str, int]] = deque()
        self._weight = 0
        self._oldest = ""
        """Id of the oldest entry to keep; empty while the log is not full."""
        self._cursor = _START
        self._epoch = ""
        """Epoch of the server whose log is being followed."""
        self._current = asyncio.Event()
        self._counts = {"appended": 0, "handled": 0, "resets": 0, "rejected": 0}

    @property
    def current(self) -> bool:
        """Whether the follower knows all entries. False while the state server is unavailable, and after the server
        has lost its data.
        """
        return self._current.is_set() and self._state.healthy and self._epoch == self._state.epoch

    async def caught_up(self, timeout_s: float) -> None:
        """Wait until the follower has handled all existing entries. Raises StateUnavailable if this takes longer than
        `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._current.wait()
        except TimeoutError as error:
            raise StateUnavailable(f"{self._key} was not read to its end within {timeout_s:g} s") from error

    @property
    def position(self) -> Position:
        return Position(self._epoch, self._cursor, list(self._weights))

    def resume(self, position: Position) -> None:
        """Start at `position`, and not at the beginning of the log. Must be called before `follow`."""
        self._epoch, self._cursor = position.epoch, position.cursor
        self._weights = deque(position.weights)
        self._weight = sum(weight for _, weight in position.weights)

    async def append(self, fields: Mapping[str | bytes, bytes], *, weight: int = 1) -> str:
        """Append an entry that counts `weight` towards the maximum length. Returns its id. Raises StateUnavailable."""
        words: list[str | bytes | int] = [word for pair in fields.items() for word in pair]
        if weight != 1:
            words += (_WEIGHT, weight)
        keep = ("MINID", "~", self._oldest) if self._oldest else ("MAXLEN", "~", self._max_length)
        entry: bytes = await self._state.call("XADD", self._key, *keep, "*", *words)
        self._counts["appended"] += 1
        return entry.decode()

    async def rewrite(self, change: Callable[[Mapping[bytes, bytes]], Replacement | None]) -> int:
        """Replace each entry for which `change` returns a replacement. Returns their number. Raises
        StateUnavailable.

        Replacements are appended to the log. Unreadable entries stay. Several workers may do this at once.
        """
        rewritten = 0
        transport = await self._state.dial()
        try:
            last = await self._reply(transport, "XREVRANGE", self._key, "+", "-", "COUNT", 1)
            begin, page = "-", last
            while page and last:
                page = await self._reply(transport, "XRANGE", self._key, begin, last[0][0], "COUNT", PAGE)
                for entry, words in page:
                    begin = f"({entry.decode()}"
                    rewritten += await self._replace(transport, entry, words, change)
        finally:
            await transport.aclose()
        return rewritten

    async def _replace(
        self,
        transport: Transport,
        entry: bytes,
        words: list[bytes],
        change: Callable[[Mapping[bytes, bytes]], Replacement | None],
    ) -> bool:
        """Replace one entry if `change` returns a replacement for it. Returns whether this call removed the
        old entry. `words`: the fields and values of the old entry."""
        try:
            replacement = change(dict(zip(words[::2], words[1::2], strict=True)))
        except (ValueError, LookupError, TypeError):
            replacement = None
        await asyncio.sleep(0)
        if replacement is None or not await self._reply(transport, "XDEL", self._key, entry):
            return False
        if replacement.fields is not None:
            await self.append(replacement.fields, weight=replacement.weight)
        return True

    @staticmethod
    async def _reply(transport: Transport, *command: str | bytes | int) -> Any:
        (reply,) = await transport.exchange((command,), READ_S)
        if isinstance(reply, Exception):
            raise StateUnavailable(str(reply)) from reply
        return reply

    async def follow(self, handle: Callable[[str, dict[bytes, bytes]], None], reset: Callable[[], None]) -> None:
        """Call `handle(id, fields)` for each entry, oldest first, forever. Entries for which `handle` raises an
        error are skipped.

        `reset()` is called if entries were lost; then all entries are handled again.
        """
        while True:
            try:
                transport = await self._state.dial()
                try:
                    self._epoch = await self._restart(transport, self._epoch, reset)
                    while self._state.epoch == self._epoch:
                        began = time.monotonic()
                        await self._page(transport, handle)
                        if time.monotonic() - began > READ_S:
                            break  # this process was suspended, so unread entries may have been removed
                finally:
                    self._current.clear()
                    await transport.aclose()
            except StateUnavailable as error:
                log.debug("index log %s: %s", self._key, error)
                await asyncio.sleep(RETRY_S)

    async def _restart(self, transport: Transport, followed: str, reset: Callable[[], None]) -> str:
        """Start over if the server's data have changed, or if entries were removed unread. `followed`: the epoch (id
        of the server's data) that was followed so far. Returns the present epoch.
        """
        epoch = self._state.epoch
        if not epoch:
            raise StateUnavailable("the epoch is not known yet")
        if (followed and epoch != followed) or await self._lost_track(transport):
            self._cursor, self._oldest, self._weight = _START, "", 0
            self._weights.clear()
            self._counts["resets"] += 1
            reset()
        return epoch

    async def _lost_track(self, transport: Transport) -> bool:
        """Whether the log no longer contains the last handled entry: the server lost data, or entries were removed
        unread."""
        if self._cursor == _START:
            return False
        (found,) = await transport.exchange((("XRANGE", self._key, self._cursor, self._cursor),), self._state.timeout_s)
        return not found or isinstance(found, Exception)

    async def _page(self, transport: Transport, handle: Callable[[str, dict[bytes, bytes]], None]) -> None:
        block = ("BLOCK", int(BLOCK_S * 1000)) if self._current.is_set() else ()
        command = ("XREAD", "COUNT", PAGE, *block, "STREAMS", self._key, self._cursor)
        (reply,) = await transport.exchange((command,), BLOCK_S + READ_S)
        if isinstance(reply, Exception):
            raise StateUnavailable(str(reply)) from reply
        entries = reply[0][1] if reply else []
        began = time.perf_counter()
        for entry, words in entries:
            self._handle(entry.decode(), words, handle)
            if time.perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.perf_counter()
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
            if self._counts["rejected"] == 1:  # only the first error is logged: all entries may have the same error
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
