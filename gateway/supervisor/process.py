"""Keeps one child process running. If the process ends, it is restarted; the delay before the restart grows each
time."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from gateway.settings.environment import child_environment
from gateway.supervisor import parent_death

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 10.0
STEADY_S = 20.0
"""Run time in seconds after which a process counts as stable. The shorter runs before it are then forgotten."""
CRASH_LOOP = 5
"""Number of consecutive short runs after which the process counts as being in a crash loop."""


class Process(Protocol):
    """A running process, forked or started as a program."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, number: int) -> None: ...


Start = Callable[[], Awaitable[Process]]
"""A function that starts a process. Raises OSError, for example without free memory or process ids."""


class ChildProcess:
    """Keeps a process running. Use it in the main thread's event loop, because the process ends with the thread that
    started it."""

    def __init__(
        self,
        name: str,
        start: Start,
        *,
        on_change: Callable[[], None] = lambda: None,
        last_error: Callable[[], str] = lambda: "",
    ) -> None:
        """`on_change`: called when the process starts or ends. `last_error`: returns the error that the process
        reported before it ended; empty if it reported none."""
        self.name = name
        self.short_lives = 0
        """Number of consecutive short runs."""
        self.starts = 0
        self.ends: Counter[str] = Counter()
        """Number of unexpected ends of the process, by cause."""
        self._cause = ""
        self._begin, self._on_change, self._last_error = start, on_change, last_error
        self._process: Process | None = None
        self._began = 0.0
        self._how = ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def lived_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    @property
    def trouble(self) -> str:
        """A sentence for /health if the process ends again and again shortly after its start; otherwise empty."""
        return f"{self.name} keeps ending {self._how}" if self.short_lives >= CRASH_LOOP else ""

    async def keep(self) -> None:
        """Start the process, and restart it whenever it ends, until cancelled. Cancelling does not end the process;
        `stop` does."""
        wait_s = FIRST_WAIT_S
        while True:
            self._began = asyncio.get_running_loop().time()
            try:
                self._process = await self._begin()
                self.starts += 1
                self._on_change()
                code = await self._process.wait()
                self._how = _how(code)
                cause = self._cause or ("exit" if code >= 0 else signal.Signals(-code).name)
                how = f"(pid {self._process.pid}) ended {self._how}"
            except OSError as error:
                self._how = how = f"could not be started: {error}"
                cause = "not started"
            self.ends[cause] += 1
            self._cause = ""
            if self.lived_s > STEADY_S:
                self.short_lives, wait_s = 0, FIRST_WAIT_S
            self.short_lives += 1
            self._log_end(how, wait_s)
            self._on_change()
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    def _log_end(self, how: str, wait_s: float) -> None:
        """Log how the process ended and when it will be restarted. After `CRASH_LOOP` consecutive short runs, nothing
        is logged any more."""
        words = self._last_error()
        how = f"{how}: {words}" if words else how
        if self.short_lives < CRASH_LOOP:
            log.warning("%s %s; again in %.1f s", self.name, how, wait_s)
        elif self.short_lives == CRASH_LOOP:
            log.error("%s keeps ending, the last time it %s; it is restarted each time", self.name, how)

    def check(self) -> None:
        """Set the number of short runs to 0 if the process has run long enough."""
        if self.short_lives and self.pid and self.lived_s > STEADY_S:
            if self.trouble:
                log.warning("%s runs steadily again", self.name)
            self.short_lives = 0
            self._on_change()

    def kill(self, cause: str) -> None:
        """Kill the process. `cause`: the cause under which /metrics counts this end."""
        self._cause = cause
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None and self._process:
            self._process.send_signal(number)

    async def stop(self, timeout_s: float) -> None:
        """Send SIGTERM to the process, and SIGKILL if it has not ended after `timeout_s` seconds. Call it only after
        `keep` was cancelled."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process would not handle SIGTERM
        if self._process is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            log.warning("%s did not end within %g s and was killed", self.name, timeout_s)
            self.signal(signal.SIGKILL)
            await self._process.wait()
        self._on_change()


async def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    fds: Sequence[int] = (),
    silent: bool = False,
) -> Process:
    """Start a program. The kernel kills the program when this process ends. `silent`: whether to discard its standard
    output. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *parent_death.command_prefix(),
        *command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if silent else None,
        env=child_environment(environment or {}),
        pass_fds=tuple(fds),
        process_group=0,  # Ctrl-C goes to the supervisor only, which then stops its children in order
    )


def program(command: Sequence[str], *, silent: bool = False) -> Start:
    """Make a function that starts the program `command`. `silent`: whether to discard the program's standard output."""
    return partial(spawn, command, silent=silent)


def python(*words: str) -> list[str]:
    """The command that runs this Python interpreter with the arguments `words`."""
    return [sys.executable, *words]


def _how(code: int) -> str:
    return f"with status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
