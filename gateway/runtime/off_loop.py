"""Runs work on large request bodies in a few threads, so that the event loop is not blocked."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

LARGE_BYTES = 256 * 2**10
"""Minimum bytes of a body that is processed in a thread. For a smaller body, passing it to a thread costs more than
processing it on the event loop."""

P = ParamSpec("P")
T = TypeVar("T")


class OffLoop:
    """A small thread pool. Use more than one thread only for work that releases Python's global interpreter lock."""

    def __init__(self, threads: int = 1, name: str = "large-bodies", nice: int = 0) -> None:
        """`nice`: how much lower the priority of the threads is than that of the process, as in nice(1)."""
        self._thread = ThreadPoolExecutor(threads, name, partial(_lower_priority, nice) if nice else None)

    async def run(self, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Run `work` in a thread. Returns its result or raises its error. `work` must not use objects of the event
        loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **more))

    def close(self) -> None:
        """Stop the threads. Work that has not begun is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _lower_priority(nice: int) -> None:
    """Lower the priority of the calling thread. Only Linux has a priority for each thread. A sandbox may forbid it, as
    systemd does with `SystemCallFilter=~@resources`; the thread must work all the same."""
    if sys.platform == "linux":
        own = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + nice)
