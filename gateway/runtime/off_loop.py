"""Runs work on large bodies in a bounded number of threads, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

LARGE_BYTES = 256 * 2**10
"""Bytes below which a body is processed on the event loop, because passing it to a thread costs more."""

P = ParamSpec("P")
T = TypeVar("T")


class OffLoop:
    """A small thread pool. It has only one thread, unless the work releases the interpreter's lock: each further
    computing thread would delay the event loop by a switch interval (5 ms)."""

    def __init__(self, threads: int = 1, name: str = "large-bodies") -> None:
        self._thread = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    async def run(self, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Run `work` in a thread, and return or raise what it does. It must not use objects of the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **more))

    def close(self) -> None:
        """Stop the threads. Waiting work is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
