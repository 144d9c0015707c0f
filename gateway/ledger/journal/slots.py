"""Keeps the progress of open attempts in a memory-mapped file, which survives the worker.

Writing to this file is as fast as writing to other memory. Therefore the progress is stored for every piece of a
stream, before the client gets the piece. If the process is killed, the kernel still has the data. A power cut may lose
the data. So a file from an earlier boot of the machine is ignored, and the last progress in the journal is used
instead.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gateway.domain.record import CHUNK_BITS

SUFFIX = ".slots"
SLOTS = 8190
"""Maximum number of open attempts of one worker that have a slot. Further attempts have no slot; only progress records
in the journal show their progress."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_HEAD = 16
_WORDS = 2
"""Number of 64-bit words per slot. The first word is the attempt's progress. The second is the Unix time in
milliseconds at which the first text arrived."""
_SIZE = _HEAD + 8 * _WORDS * SLOTS


def path_of(directory: Path, lane: str) -> Path:
    """The path of the file with the progress slots of `lane`, the name of one worker process's journal."""
    return directory / (lane + SUFFIX)


class Progress(NamedTuple):
    """The progress of one attempt, as `Attempt.came` stored it in a slot."""

    chunks: int
    output_bytes: int
    spoke_at: float | None
    """Unix time at which the first text arrived; None if no text has arrived."""


def progress_of(words: Sequence[int], number: int) -> Progress | None:
    """Decode the progress in slot `number`; None if no part of the answer has arrived. `words`: the contents of all
    slots, as 64-bit integers."""
    word, spoke_ms = words[_WORDS * number : _WORDS * (number + 1)]
    if not word:
        return None
    return Progress(word & (1 << CHUNK_BITS) - 1, word >> CHUNK_BITS, spoke_ms / 1000 if spoke_ms else None)


class Slots:
    """The file with one worker's progress slots. Only this worker writes to it."""

    def __init__(self, path: Path) -> None:
        """Create the file at its full size, so that a full disk cannot make a later store fail. Raises OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(_boot().ljust(_HEAD, b"\0") + bytes(_SIZE - _HEAD))
            self._words = memoryview(mmap.mmap(fd, _SIZE))[_HEAD:].cast("Q")
        finally:
            os.close(fd)
        self._free: list[int] = []
        self._taken = 0
        """Number of slots that have ever been used. They are the slots with the lowest numbers."""

    def take(self) -> int | None:
        """Reserve a slot and return its number; None if all slots are in use."""
        if self._free:
            number = self._free.pop()
        elif self._taken < SLOTS:
            number, self._taken = self._taken, self._taken + 1
        else:
            return None
        for place in range(_WORDS * number, _WORDS * (number + 1)):
            self._words[place] = 0
        return number

    def words(self, number: int) -> memoryview:
        """A view of slot `number`, for the attribute `progress` of an `Attempt`."""
        return self._words[_WORDS * number : _WORDS * (number + 1)]

    def give_back(self, number: int) -> None:
        """Free slot `number` for another attempt. Call this only after the end of the slot's attempt was written to the
        journal; before that, a crash would lose the attempt's progress."""
        self._free.append(number)


def read(path: Path) -> memoryview | None:
    """Read the contents of all slots of a dead worker. None if there is no file from the present boot of the
    machine."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    boot = _boot()
    if len(data) != _SIZE or not boot or data[:_HEAD] != boot:
        return None
    return memoryview(data)[_HEAD:].cast("Q")


def _boot() -> bytes:
    """The id of the machine's current boot; empty on systems without such an id."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return b""
