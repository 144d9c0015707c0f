"""Files in which a process publishes its figures. They stay readable if the process dies or the disk fills up."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from contextlib import suppress
from pathlib import Path
from zlib import crc32

_HEAD = struct.Struct(">QII")
"""Head of a file: edition number, length and checksum of the data."""
_GRAIN = 32768
"""Files grow in steps of this many bytes, before the space is needed. So a full disk does not stop the updates."""
SIDES = (".a", ".b")


class MetricsFile:
    """Writes the figures of a process to two files in turn, so that one of them is always complete.

    A lock on the first file shows that the process is running. Any thread may use the object.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Create and lock the files. Raises OSError."""
        self.name = name
        self._turn = threading.Lock()
        self._edition = 0
        self._reserved = [0, 0]
        self._fds: list[int] = []
        # not visible to readers before it is locked, since they take an unlocked file for that of a dead process
        new = folder / f"{name}.new"
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
        """Write `data` as the newest figures. Raises OSError; the previous figures then stay."""
        with self._turn:
            edition = self._edition + 1
            number = edition % 2
            fd, whole = self._fds[number], _HEAD.pack(edition, len(data), crc32(data)) + data
            if len(whole) > self._reserved[number]:
                self._grow(number, fd, (2 * len(whole) // _GRAIN + 1) * _GRAIN)
            _write(fd, whole, 0)
            self._edition = edition

    def _grow(self, number: int, fd: int, size: int) -> None:
        _write(fd, bytes(size - self._reserved[number]), self._reserved[number])
        self._reserved[number] = size

    def close(self) -> None:
        """Close the files and release the lock. Readers then assume that the process has ended, but they can still
        read the figures.
        """
        with self._turn:
            for fd in self._fds:
                os.close(fd)
            self._fds = []


def _write(fd: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written


def names(folder: Path) -> list[str]:
    """The names under which figures are published in `folder`."""
    return sorted(path.stem for path in folder.glob(f"*{SIDES[0]}"))


def read(folder: Path, name: str) -> bytes | None:
    """The newest complete edition of the figures `name`; None if there is no complete edition."""
    newest, found = 0, None
    for side in SIDES:
        try:
            data = (folder / f"{name}{side}").read_bytes()
        except OSError:  # the file is missing or the disk has failed
            continue
        if len(data) < _HEAD.size:
            continue
        edition, length, checksum = _HEAD.unpack_from(data)
        body = data[_HEAD.size : _HEAD.size + length]
        if edition > newest and len(body) == length and crc32(body) == checksum:
            newest, found = edition, body
    return found


def alive(folder: Path, name: str) -> bool:
    """Whether the process that publishes the figures `name` is running. A suspended process counts as running."""
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
    """Delete the files of the figures `name`."""
    for side in reversed(SIDES):  # reversed, because readers look for the first one
        with suppress(FileNotFoundError):
            (folder / f"{name}{side}").unlink()
