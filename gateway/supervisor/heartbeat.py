"""The pipe on which a worker reports its state to the supervisor every second."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

WORKER_VARIABLE = "THRIFTGATE_WORKER"
"""The environment variable with the worker's settings as JSON, for a worker that was not forked."""
STAGES = ("open", "ready")
"""`open`: the worker accepts connections. `ready`: it answers requests. Before its first report, the worker is
starting."""
FAILED = "failed "
"""Prefix of the line from a worker that could not start. The error follows."""
_MOST_BYTES = 4096
"""Maximum bytes of a line. A pipe delivers lines up to this length in one piece."""


class Heartbeat:
    """The supervisor's end of the pipe, for one process of a worker. Belongs to the running event loop."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._reader, self.writer = os.pipe()  # the worker gets `writer`; no other child inherits either end
        os.set_blocking(self._reader, False)
        self._rest = b""
        self.stage = ""
        self.error = ""
        """Why the worker could not start; empty if it is unknown."""
        self.heard_at = self._loop.time()
        self._loop.add_reader(self._reader, self.listen)

    def listen(self) -> None:
        """Read the lines that have arrived."""
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
        """Close the worker's end in this process. The worker has a copy of it, or could not be started."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Stop reading. The last state remains readable."""
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1


def reporter(fd: int) -> Callable[[str], None]:
    """A function that sends one line on `fd`, the worker's end. It never blocks: if the pipe is full, the line is lost.

    If the supervisor has ended, the worker gets SIGTERM.
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
