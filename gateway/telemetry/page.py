"""A file in which a process publishes its figures. It stays readable if the process dies or the disk fills up."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from contextlib import suppress
from pathlib import Path
from zlib import crc32

_HEAD = struct.Struct(">QII")
"""Edition number, length and checksum of the data that follow."""
_GRAIN = 32768
"""Files grow in steps of this many bytes, before the space is needed, so that a full disk does not stop updates."""
SIDES = (".a", ".b")


class MetricsFile:
    """Writes editions to two files in turn, so that one of them is always complete.

    As long as the process runs, it holds a lock on the first file. May be called from any thread.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Create the files. Raises OSError."""
        self.name = name
        self._turn = threading.Lock()
        self._edition = 0
        self._reserved = [0, 0]
        self._fds: list[int] = []
        new = (
            folder / f"{name}.new"
        )  # not visible to readers before it is locked, since they take an unlocked file for that of a dead process
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
        """Write a new edition. Raises OSError; then the previous edition stays."""
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
        """Close the files and release the lock, so that the process counts as ended. The figures stay readable."""
        with self._turn:
            for fd in self._fds:
                os.close(fd)
            self._fds = []


def _write(fd: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written


def names(folder: Path) -> list[str]:
    """Names of all published files in the folder."""
    return sorted(path.stem for path in folder.glob(f"*{SIDES[0]}"))


def read(folder: Path, name: str) -> bytes | None:
    """The newest complete edition; None if there is none."""
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
    """Whether the process that writes the file is running, even if it is suspended."""
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
    """Delete the files."""
    for side in reversed(SIDES):  # reversed, because readers look for the first one
        with suppress(FileNotFoundError):
            (folder / f"{name}{side}").unlink()
