"""The results of one batch as they come in: appended to its output and error file, which also say what is done."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import orjson

from gateway.batches.lines import numbered


class Results:
    """Blocking: off the loop only. Survives a kill between any two instructions. Raises OSError."""

    def __init__(self, output: Path, errors: Path) -> None:
        self.done: set[str] = set()
        """Ids of the lines that have a result."""
        self._lock = threading.Lock()
        self.output = _File(output, self.done)
        try:
            self.errors = _File(errors, self.done)
        except BaseException:
            self.output.close()
            raise

    def add(self, custom_id: str, result: bytes, *, failed: bool) -> None:
        """`result` ends with a newline. One that could not be written can be added again."""
        with self._lock:
            (self.errors if failed else self.output).append(result)
            self.done.add(custom_id)

    def close(self) -> None:
        """What is added afterwards is refused; it never meets a descriptor that is another file by now."""
        with self._lock:
            self.output.close()
            self.errors.close()


class _File:
    def __init__(self, path: Path, done: set[str]) -> None:
        self.path, self.lines, self.size = path, 0, 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._read(done)
            os.ftruncate(self._fd, self.size)  # a line that was cut short was never told to anybody
        except BaseException:
            os.close(self._fd)
            raise

    def _read(self, done: set[str]) -> None:
        for _, line in numbered(self.path):
            if not line.endswith(b"\n"):
                return
            done.add(orjson.loads(line)["custom_id"])
            self.lines += 1
            self.size += len(line)

    def append(self, line: bytes) -> None:
        try:
            if os.write(self._fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        except OSError:
            if self._fd >= 0:
                os.ftruncate(self._fd, self.size)
            raise
        self.size += len(line)
        self.lines += 1

    def close(self) -> None:
        os.close(self._fd)
        self._fd = -1
