"""Work on large bodies, one piece at a time in a thread of its own, so that the event loop serves others meanwhile."""

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
    """One thread, not several: each more that computes would keep the event loop waiting for the interpreter's lock a
    switch interval (5 ms) longer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-bodies")

    async def run(self, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """What `work` returns or raises. It must not touch what belongs to the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **more))

    def close(self) -> None:
        """Let go of the thread; what waits for it is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
