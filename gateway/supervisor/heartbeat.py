"""Messages between supervisor and worker: a heartbeat each second, and commands."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

TOLD = "THRIFTGATE_WORKER"
"""The environment variable with the worker's settings as JSON, for a worker that was not forked."""
STAGES = ("open", "ready")
"""It takes connections; it answers requests. Before the first, it is starting."""
FAILED = "failed "
"""Begins the line of a worker that could not start; the error follows."""
_MOST_BYTES = 4096
"""A line of at most so many goes through a pipe whole."""


class Heartbeat:
    """The supervisor's end, for one life of a worker. Belongs to the running loop."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._reader, self.writer = os.pipe()  # the worker's end is `writer`; nobody else inherits either
        os.set_blocking(self._reader, False)
        self._rest = b""
        self.stage = ""
        self.error = ""
        """Why it could not start."""
        self.heard_at = self._loop.time()
        self._loop.add_reader(self._reader, self.listen)

    def listen(self) -> None:
        """Read the lines that have arrived."""
        if self._reader < 0:
            return
        try:
            said = os.read(self._reader, 65536)
        except BlockingIOError:
            return
        if not said:
            self.close()
            return
        self.heard_at = self._loop.time()
        *lines, self._rest = (self._rest + said).split(b"\n")
        before = self.stage
        for line in lines:
            self._take(line.decode("utf-8", "replace"))
        if self.stage != before:
            self._on_change()

    def _take(self, line: str) -> None:
        if line in STAGES:
            self.stage = line
        elif line.startswith(FAILED):
            self.error = line.removeprefix(FAILED)

    def hand_over(self) -> None:
        """The worker has its end now, or never will."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Stop reading; the last state is kept."""
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1


def speaker(fd: int) -> Callable[[str], None]:
    """The worker's end. It never blocks: a busy supervisor may miss a line. A worker whose supervisor is gone shuts
    down."""
    os.set_blocking(fd, False)
    os.set_inheritable(fd, False)

    def say(line: str) -> None:
        try:
            os.write(fd, line.replace("\n", "; ").encode()[: _MOST_BYTES - 1] + b"\n")
        except BrokenPipeError:
            signal.raise_signal(signal.SIGTERM)
        except BlockingIOError:
            pass  # full

    return say
