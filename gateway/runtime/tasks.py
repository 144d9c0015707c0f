"""Owns background tasks: waits for them at the end, and logs those that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


async def repeat(
    step: Callable[[], Awaitable[object]], every_s: float, troubled: Callable[[Exception], None], *on: type[Exception]
) -> None:
    """Call `step` again and again, with pauses of `every_s` seconds. Errors of the classes `on` do not end the loop.
    `troubled`: called with the first of several consecutive errors."""
    failing = False
    while True:
        try:
            await step()
            failing = False
        except on as error:
            if not failing:
                troubled(error)
            failing = True
        await asyncio.sleep(every_s)


class Tasks:
    """Background tasks with names, which are closed together. An error in one task is logged and does not affect the
    others."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("background task %s ended: %r", task.get_name(), error, exc_info=error)

    def __len__(self) -> int:
        return len(self._running)

    async def drain(self, timeout_s: float) -> None:
        """Wait until the running tasks have ended, for at most `timeout_s` seconds."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=timeout_s)

    async def aclose(self) -> None:
        """Cancel the tasks that still run, and wait until they have ended."""
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)
