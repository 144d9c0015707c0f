"""The pipe on which each worker reports its state to the supervisor every second (its heartbeats)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

WORKER_VARIABLE = "THRIFTGATE_WORKER"
"""Environment variable with the worker's settings as JSON. It is only read by workers that were not forked."""
STAGES = ("open", "ready")
"""Reports of a worker. `open`: the worker accepts connections. `ready`: the worker answers requests. Before the first
report, the worker is still starting."""
FAILED = "failed "
"""Prefix of the line that a worker writes if it could not start. The error follows the prefix."""
_MOST_BYTES = 4096
"""Maximum bytes of a line. A pipe delivers lines of up to this length in one piece."""


class Heartbeat:
    """The supervisor's end of the pipe to one worker process. Use the object only in the event loop in which it was
    created."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._reader, self.writer = os.pipe()  # the worker gets `writer`; no other child inherits either end
        os.set_blocking(self._reader, False)
        self._rest = b""
        self.stage = ""
        self.error = ""
        """The error with which the worker failed to start; empty if none was reported."""
        self.heard_at = self._loop.time()
        self._loop.add_reader(self._reader, self.listen)

    def listen(self) -> None:
        """Read the lines that the worker has written since the last call."""
        if self._reader < 0:
            return
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        self.heard_at = self._loop.time()
        *lines, self._rest = (self._rest + data).split(b"\n")
        before = self.stage
        for line in lines:
            self._parse(line.decode("utf-8", "replace"))
        if self.stage != before:
            self._on_change()

    def _parse(self, line: str) -> None:
        if line in STAGES:
            self.stage = line
        elif line.startswith(FAILED):
            self.error = line.removeprefix(FAILED)

    def hand_over(self) -> None:
        """Close this process's copy of the worker's end of the pipe. Call this after the worker got its own copy, or
        could not be started."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Stop reading. `stage` stays at the last stage that the worker reported (one of `STAGES`)."""
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1


def reporter(fd: int) -> Callable[[str], None]:
    """Make a function that writes one line to `fd`, the worker's end of the pipe. The function never blocks: if the
    pipe is full, the line is lost. If the supervisor is gone, the function sends SIGTERM to the worker.
    """
    os.set_blocking(fd, False)
    os.set_inheritable(fd, False)

    def report(line: str) -> None:
        try:
            os.write(fd, line.replace("\n", "; ").encode()[: _MOST_BYTES - 1] + b"\n")
        except BrokenPipeError:
            signal.raise_signal(signal.SIGTERM)
        except BlockingIOError:
            pass  # the pipe is full

    return report
