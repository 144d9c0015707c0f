"""Runs work on large bodies in a bounded number of threads, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

LARGE_BYTES = 256 * 2**10
"""Of a body; what a smaller one takes is not worth handing over to a thread."""

P = ParamSpec("P")
T = TypeVar("T")


class OffLoop:
    """One thread, unless the work is done without the interpreter's lock: each more that computes with it would keep
    the event loop waiting a switch interval (5 ms) longer."""

    def __init__(self, threads: int = 1, name: str = "large-bodies") -> None:
        self._thread = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    async def run(self, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """What `work` returns or raises. It must not touch what belongs to the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **more))

    def close(self) -> None:
        """Let go of the threads; what waits for them is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
