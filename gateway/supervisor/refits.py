"""Starts `thriftgate router refit` once a week, in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.domain.protocols import Clock
from gateway.supervisor.process import Process, program

log = logging.getLogger(__name__)

WEEK_S, AGAIN_S = 7 * 86400.0, 86400.0
"""Seconds from one run to the next: after a run that succeeded, and after one that failed."""
CHECK_S = 60.0
STOP_S = 10.0


class Refits:
    """Runs a command once a week. The time of the next run is stored in a file, so a restart does not change it."""

    def __init__(
        self,
        stamp: Path,
        command: Callable[[], Sequence[str] | None],
        *,
        check_s: float = CHECK_S,
        clock: Clock = time,
    ) -> None:
        """`stamp`: file with the Unix time of the next run. `command`: returns the command to run; None while this is
        switched off."""
        self._stamp, self._command, self._check_s, self._clock = stamp, command, check_s, clock
        self._process: Process | None = None

    async def run(self) -> None:
        """Run the command whenever it is due, until cancelled. The first run is due a week after the command was
        switched on."""
        while True:
            command = self._command()
            if command is not None:
                await self._when_due(command)
            await asyncio.sleep(self._check_s)

    async def _when_due(self, command: Sequence[str]) -> None:
        try:
            due = await asyncio.to_thread(self._due)
            if self._clock.time() < due:
                return
            self._process = await program(command, silent=True)()
            code = await self._process.wait()
            await asyncio.to_thread(self._next, AGAIN_S if code else WEEK_S)
        except OSError as error:
            log.error("the weekly refit of routing's plan could not run: %s", error)
            return
        if code:
            log.error("the weekly refit of routing's plan ended with status %d; it is tried again in a day", code)
        else:
            log.info("the weekly refit of routing's plan is done")

    def _due(self) -> float:
        """The Unix time of the next run. Writes the file if there is none, or if its content is not a number. Raises
        OSError."""
        try:
            return float(self._stamp.read_text())
        except (FileNotFoundError, ValueError):
            return self._next(WEEK_S)

    def _next(self, wait_s: float) -> float:
        due = self._clock.time() + wait_s
        self._stamp.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = self._stamp.with_name(self._stamp.name + ".new")
        fresh.write_text(str(due))
        fresh.replace(self._stamp)
        return due

    async def aclose(self) -> None:
        """End a run in progress. Its measurements are kept, and the next run continues from there."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(15)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.send_signal(9)
