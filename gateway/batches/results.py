"""Appends a batch's results to an output file and an error file. These two files also show which lines already have a
result."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import orjson

from gateway.batches.forms import Form
from gateway.batches.lines import numbered


class Results:
    """Appends results to the two files of one batch. If a killed process left an incomplete line, this line is removed.
    The methods block and may raise OSError."""

    def __init__(self, output: Path, errors: Path, form: Form) -> None:
        self.done: set[str] = set()
        """The `custom_id` of each line that has a result."""
        self.unsent = 0
        """Number of lines in `done` that were never sent, because the batch ended before."""
        self._lock, self._form = threading.Lock(), form
        self.output = _File(output, self._found)
        try:
            self.errors = _File(errors, self._found)
        except BaseException:
            self.output.close()
            raise

    def add(self, custom_id: str, result: bytes, *, failed: bool, unsent: bool = False) -> None:
        """Append `result`, one line with its newline. If writing fails, call `add` again. `failed`: whether the result
        belongs in the error file. `unsent`: whether the request was never sent."""
        with self._lock:
            (self.errors if failed else self.output).append(result)
            self.done.add(custom_id)
            self.unsent += unsent

    def _found(self, line: bytes) -> None:
        """Count a result that an earlier run wrote to the files."""
        result = orjson.loads(line)
        self.done.add(result["custom_id"])
        self.unsent += self._form.unsent(result)

    def close(self) -> None:
        """Close the files. Later calls of `add` raise an error. Otherwise, they could write to other files that
        were opened later with the same file descriptors.
        """
        with self._lock:
            self.output.close()
            self.errors.close()


class _File:
    def __init__(self, path: Path, found: Callable[[bytes], None]) -> None:
        self.path, self.lines, self.size = path, 0, 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._read(found)
            os.ftruncate(self._fd, self.size)  # remove an incomplete line, which was never counted as done
        except BaseException:
            os.close(self._fd)
            raise

    def _read(self, found: Callable[[bytes], None]) -> None:
        for _, line in numbered(self.path):
            if not line.endswith(b"\n"):
                return
            found(line)
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
