"""A file in which a process publishes its figures: always whole, whatever happens to process or disk."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from contextlib import suppress
from pathlib import Path
from zlib import crc32

_HEAD = struct.Struct(">QII")
"""Number of the edition, length and checksum of what follows."""
_GRAIN = 32768
"""Files are made larger in steps of so many bytes, ahead of need: a disk that is full does not stop what is there."""
SIDES = (".a", ".b")


class MetricsFile:
    """Editions are written to two files in turn, so that one of them is always whole.

    The process holds a lock on the first for as long as it lives. From any thread.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Opens it. Raises OSError."""
        self.name = name
        self._turn = threading.Lock()
        self._edition = 0
        self._room = [0, 0]
        self._fds: list[int] = []
        new = folder / f"{name}.new"  # seen by nobody before it is locked: it would be taken for a dead one's
        try:
            for place in (new, folder / f"{name}{SIDES[1]}"):
                self._fds.append(os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.flock(self._fds[0], fcntl.LOCK_EX)
            for number, fd in enumerate(self._fds):
                self._grow(number, fd, _GRAIN)
            new.rename(folder / f"{name}{SIDES[0]}")
        except OSError:
            self.close()
            raise

    def write(self, data: bytes) -> None:
        """A new edition. Raises OSError; then the last one stays."""
        with self._turn:
            edition = self._edition + 1
            number = edition % 2
            fd, whole = self._fds[number], _HEAD.pack(edition, len(data), crc32(data)) + data
            if len(whole) > self._room[number]:
                self._grow(number, fd, (2 * len(whole) // _GRAIN + 1) * _GRAIN)
            _write(fd, whole, 0)
            self._edition = edition

    def _grow(self, number: int, fd: int, size: int) -> None:
        _write(fd, bytes(size - self._room[number]), self._room[number])
        self._room[number] = size

    def close(self) -> None:
        """What was published stays; the process counts as gone."""
        with self._turn:
            for fd in self._fds:
                os.close(fd)
            self._fds = []


def _write(fd: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written


def names(folder: Path) -> list[str]:
    """Of all pages there."""
    return sorted(path.stem for path in folder.glob(f"*{SIDES[0]}"))


def read(folder: Path, name: str) -> bytes | None:
    """The newest edition that is whole; None if there is none."""
    newest, found = 0, None
    for side in SIDES:
        try:
            data = (folder / f"{name}{side}").read_bytes()
        except OSError:  # not there, or the disk is not
            continue
        if len(data) < _HEAD.size:
            continue
        edition, length, checksum = _HEAD.unpack_from(data)
        body = data[_HEAD.size : _HEAD.size + length]
        if edition > newest and len(body) == length and crc32(body) == checksum:
            newest, found = edition, body
    return found


def alive(folder: Path, name: str) -> bool:
    """Whether its process still has it open, be it frozen."""
    try:
        fd = os.open(folder / f"{name}{SIDES[0]}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove(folder: Path, name: str) -> None:
    """Forget it."""
    for side in reversed(SIDES):  # the first is the one that is found
        with suppress(FileNotFoundError):
            (folder / f"{name}{side}").unlink()
