"""One child process: restarted with growing delays when it ends."""

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
"""One that ran this long starts with a clean record."""
LOOP = 5
"""So many short lives in a row are a crash loop."""


class Process(Protocol):
    """One life, however it was started."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, number: int) -> None: ...


Start = Callable[[], Awaitable[Process]]
"""Raises OSError when there is no memory, or are no processes left."""


class ChildProcess:
    """Belongs to the event loop of the main thread, on which its process also depends for its life."""

    def __init__(
        self,
        name: str,
        start: Start,
        *,
        on_change: Callable[[], None] = lambda: None,
        last_words: Callable[[], str] = lambda: "",
    ) -> None:
        """`last_words`: the error that the process reported before it ended."""
        self.name = name
        self.short_lives = 0
        """In a row, up to now."""
        self.starts = 0
        self.ends: Counter[str] = Counter()
        """Number of processes that ended without being asked to, by cause."""
        self._cause = ""
        self._begin, self._on_change, self._last_words = start, on_change, last_words
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
        """Empty unless it keeps ending."""
        return f"{self.name} keeps ending {self._how}" if self.short_lives >= LOOP else ""

    async def keep(self) -> None:
        """Run it until cancelled; then it still runs, and `stop` ends it."""
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
            self._tell(how, wait_s)
            self._on_change()
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    def _tell(self, how: str, wait_s: float) -> None:
        """Log each end, until the process is in a crash loop, which is logged once."""
        words = self._last_words()
        how = f"{how}: {words}" if words else how
        if self.short_lives < LOOP:
            log.warning("%s %s; again in %.1f s", self.name, how, wait_s)
        elif self.short_lives == LOOP:
            log.error("%s keeps ending, the last time it %s; it is tried again and again", self.name, how)

    def look(self) -> None:
        """Forgive one that has lived long enough."""
        if self.short_lives and self.pid and self.lived_s > STEADY_S:
            if self.trouble:
                log.warning("%s runs steadily again", self.name)
            self.short_lives = 0
            self._on_change()

    def put_down(self, cause: str) -> None:
        """It is of no use any more."""
        self._cause = cause
        self.signal(signal.SIGKILL)

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
        self._on_change()


async def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    fds: Sequence[int] = (),
    silent: bool = False,
) -> Process:
    """A fresh program, which the kernel ends with us. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *parent_death.prefix(),
        *command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if silent else None,
        env=child_environment(environment or {}),
        pass_fds=tuple(fds),
        start_new_session=True,  # Ctrl-C is for the supervisor, who then drains
    )


def program(command: Sequence[str], *, silent: bool = False) -> Start:
    """The same program at each start."""
    return partial(spawn, command, silent=silent)


def python(*words: str) -> list[str]:
    """A command for our own interpreter."""
    return [sys.executable, *words]


def _how(code: int) -> str:
    return f"with status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
