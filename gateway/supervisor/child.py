"""One process that is to run: started again, ever more slowly, whenever it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from gateway.settings.environment import child_environment
from gateway.supervisor import tether

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 10.0
STEADY_S = 20.0
"""One that ran this long starts with a clean record."""


class Child:
    """Belongs to the event loop of the main thread, on which its process also depends for its life."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
        silent: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.starts = 0
        self._command = [*tether.prefix(), *command]
        self._environment = child_environment(environment or {})
        self._fds = tuple(fds)
        self._silent = silent
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def keep(self) -> None:
        """Run it until cancelled; then it still runs, and `stop` ends it."""
        wait_s = FIRST_WAIT_S
        while True:
            began = asyncio.get_running_loop().time()
            try:
                process = await self._start()
                how = f"(pid {process.pid}) ended {_how(await process.wait())}"
            except OSError as error:  # no memory, no processes left
                how = f"could not be started: {error}"
            self._on_change()
            if asyncio.get_running_loop().time() - began > STEADY_S:
                wait_s = FIRST_WAIT_S
            log.warning("%s %s; again in %.1f s", self.name, how, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if self._silent else None,
            env=self._environment,
            pass_fds=self._fds,
            start_new_session=True,  # Ctrl-C is for the supervisor, who then drains
        )
        self.starts += 1
        self._on_change()
        return self._process

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None and self._process:
            self._process.send_signal(number)

    async def stop(self, timeout_s: float) -> None:
        """Politely, then not. Call when `keep` no longer runs."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a frozen one could not obey
        if self._process is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            log.warning("%s did not end within %g s and was killed", self.name, timeout_s)
            self.signal(signal.SIGKILL)
            await self._process.wait()


def python(*words: str) -> list[str]:
    """A command for our own interpreter."""
    return [sys.executable, *words]


def _how(code: int) -> str:
    return f"with status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
