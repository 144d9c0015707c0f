"""File locks that tell which worker of this host answers a request; the kernel releases those of a dead worker."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

_OWNER = struct.Struct("=q")
_SLOTS = 4096
_LOCKS_FROM = 2**20
"""Byte of the first lock; before it stand the owners. Locks need no bytes to be there."""


class HostLocks:
    """One per process: a process never is in its own way, and all its locks go when it closes the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "claims"
        self._fd = -1
        self._mine = _OWNER.pack(os.getpid())

    def open(self) -> None:
        """Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def name(self) -> str:
        """A name that is equal for all users of the file, and for no other."""
        file = os.fstat(self._fd)
        return f"{os.uname().nodename}-{file.st_dev}-{file.st_ino}"

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def take(self, digest: bytes) -> int | None:
        """None: it is ours now. Else the process that has it, which may just be letting it go.

        Three system calls that wait for nothing, some 5 µs with the one that releases. A disk that cannot tell says
        that it is ours: then each worker asks for itself.
        """
        if self._fd < 0:
            return None
        lock, slot = _place(digest)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, lock)
        except (BlockingIOError, PermissionError):
            return self._owner(slot)
        except OSError:
            return None
        try:
            os.pwrite(self._fd, self._mine, slot)
        except OSError:  # the disk is full: who looks for us meets somebody who knows nothing of it
            return None
        return None

    def _owner(self, slot: int) -> int:
        """0: unknown. Two questions may share a slot; the process that is found then does not know this question."""
        told = os.pread(self._fd, _OWNER.size, slot)
        return int(_OWNER.unpack(told)[0]) if len(told) == _OWNER.size else 0

    def release(self, digest: bytes) -> None:
        if self._fd >= 0:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _place(digest)[0])


def _place(digest: bytes) -> tuple[int, int]:
    """The byte that is locked for a question, and where its owner stands."""
    number = int.from_bytes(digest[:7])
    return _LOCKS_FROM + number, number % _SLOTS * _OWNER.size
