"""File locks that show which worker of this host makes the call for a request. If a worker dies, the kernel releases
its locks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
from pathlib import Path

LINGER_S = 0.5
"""Seconds after which the lock of a stored answer is released. By then, the other workers know the answer from the
index log."""
_OWNER = struct.Struct("=q")
_SLOTS = 4096
_LOCKS_FROM = 2**20
"""Offset in the file of the first byte that may be locked. The process ids of the owners are stored before this offset.
A byte can be locked although the file is shorter."""


class HostLocks:
    """The locks of one process. A process must have only one instance, because file locks of one process never
    conflict."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "claims"
        self._fd = -1
        self._own_pid = _OWNER.pack(os.getpid())
        self._lingering: dict[bytes, float] = {}
        """Digest → loop time at which the lock of this digest is released; ordered by this time."""
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Open the lock file. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def name(self) -> str:
        """A name that is equal in all processes that use this lock file, and different in all others."""
        file = os.fstat(self._fd)
        return f"{os.uname().nodename}-{file.st_dev}-{file.st_ino}"

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def take(self, digest: bytes) -> int | None:
        """Take the lock for `digest` without waiting. Returns the id of the process that has the lock.

        None: the caller must make the call, because this process now has the lock, or because the lock file cannot
        be used.
        """
        if self._fd < 0:
            return None
        self._lingering.pop(digest, None)
        lock, slot = _offsets(digest)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, lock)
        except (BlockingIOError, PermissionError):
            return self._owner(slot)
        except OSError:
            return None
        try:
            os.pwrite(self._fd, self._own_pid, slot)
        except OSError:  # the disk is full: other workers read a wrong owner, so they make a call of their own
            return None
        return None

    def _owner(self, slot: int) -> int:
        """The process id of the lock's owner; 0 if unknown. The owner may hold the lock for another digest."""
        stored = os.pread(self._fd, _OWNER.size, slot)
        return int(_OWNER.unpack(stored)[0]) if len(stored) == _OWNER.size else 0

    def release(self, digest: bytes) -> None:
        if self._fd >= 0:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _offsets(digest)[0])

    def release_later(self, digest: bytes) -> None:
        """Release the lock for `digest` after `LINGER_S` seconds. If the lock is taken again before that, it is
        kept.
        """
        loop = asyncio.get_running_loop()
        self._lingering[digest] = loop.time() + LINGER_S
        if self._timer is None:
            self._timer = loop.call_later(LINGER_S, self._release_due, loop)

    def _release_due(self, loop: asyncio.AbstractEventLoop) -> None:
        now, due = loop.time(), []
        for digest, at in self._lingering.items():
            if at > now:
                break
            due.append(digest)
        for digest in due:
            del self._lingering[digest]
            self.release(digest)
        self._timer = loop.call_later(LINGER_S, self._release_due, loop) if self._lingering else None


def _offsets(digest: bytes) -> tuple[int, int]:
    """Return two offsets in the lock file for `digest`: of the byte to lock, and of the slot for the owner's
    process id.
    """
    number = int.from_bytes(digest[:7])
    return _LOCKS_FROM + number, number % _SLOTS * _OWNER.size
