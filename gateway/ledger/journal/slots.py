"""Progress of open attempts in a memory-mapped file, which survives the worker.

A store here costs as much as one to any other memory, so one is made for every piece of a stream before the piece is
passed on. What a killed process stored is still in the kernel. When the kernel goes too, with the power, the table
is one of another boot: it is not believed, and the journal's last marks count instead.
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
"""Attempts of one worker that have a slot at a time; those beyond are known by their marks alone."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_HEAD = 16
_WORDS = 2
"""Of a slot: how far its attempt has come, and when its text began."""
_SIZE = _HEAD + 8 * _WORDS * SLOTS


def path_of(directory: Path, lane: str) -> Path:
    return directory / (lane + SUFFIX)


class Progress(NamedTuple):
    """What `Attempt.came` stored."""

    chunks: int
    output_bytes: int
    spoke_at: float | None
    """Unix seconds; None: no text had come."""


def progress_of(words: Sequence[int], number: int) -> Progress | None:
    """Of slot `number`; None when nothing had come."""
    word, spoke_ms = words[_WORDS * number : _WORDS * (number + 1)]
    if not word:
        return None
    return Progress(word & (1 << CHUNK_BITS) - 1, word >> CHUNK_BITS, spoke_ms / 1000 if spoke_ms else None)


class Slots:
    """The table of one lane, to be written by its worker alone."""

    def __init__(self, path: Path) -> None:
        """Raises OSError; the file is written out, so that no later store can miss its place on a full disk."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(_boot().ljust(_HEAD, b"\0") + bytes(_SIZE - _HEAD))
            self._words = memoryview(mmap.mmap(fd, _SIZE))[_HEAD:].cast("Q")
        finally:
            os.close(fd)
        self._free: list[int] = []
        self._taken = 0
        """So many, from the first on, were in use at some time: few workers ever need all."""

    def take(self) -> int | None:
        """An empty slot's number; None when all are in use."""
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
        """Those of slot `number`."""
        return self._words[_WORDS * number : _WORDS * (number + 1)]

    def give_back(self, number: int) -> None:
        """Only once the attempt's end is in the journal: until then a slot is what is known of its attempt."""
        self._free.append(number)


def read(path: Path) -> memoryview | None:
    """The words that a dead worker left; None when there are none, or none of this boot of the machine."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    boot = _boot()
    if len(data) != _SIZE or not boot or data[:_HEAD] != boot:
        return None
    return memoryview(data)[_HEAD:].cast("Q")


def _boot() -> bytes:
    """Another for each start of the machine; empty where the system does not tell."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return b""
