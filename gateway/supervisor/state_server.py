"""Keeps the embedded Valkey (the state server) running. If it ends or freezes, it is restarted with its data."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gateway.settings.files import ConfigError
from gateway.settings.gateway import Paths
from gateway.state.redis.embedded import EmbeddedServer, EmbeddedServerError
from gateway.supervisor import parent_death
from gateway.supervisor.figures import Figure, by_cause

T = TypeVar("T")

log = logging.getLogger(__name__)

CHECK_S = 1.0
FROZEN_S = 3.0
"""Seconds without an answer after which the server is restarted. (Workers treat it as unavailable much earlier.)"""
LONGEST_WAIT_S = 5.0


class StateServer:
    """Keeps Valkey running. It works in one thread, which must live as long as this process."""

    def __init__(
        self, paths: Paths, on_change: Callable[[], None] = lambda: None, *, max_memory_bytes: int | None = None
    ) -> None:
        self._server = EmbeddedServer(
            paths.valkey,
            socket_path=paths.socket,
            prefix=parent_death.command_prefix(),
            max_memory_bytes=max_memory_bytes,
        )
        self._on_change = on_change
        self._ends = Counter(gone=0, frozen=0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state-server")

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def own_url(self) -> str:
        return self._server.own_url

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def figures(self) -> Iterator[Figure]:
        yield "state_server_up", (), int(self.pid is not None)
        yield from by_cause("state_server_ends", self._ends)

    def processes(self) -> Iterator[tuple[str, int | None]]:
        yield "valkey", self.pid

    async def start(self) -> None:
        """Start Valkey. Raises ConfigError if it cannot start."""
        try:
            await self._in_thread(self._start)
        except EmbeddedServerError as error:
            raise ConfigError([str(error)]) from error
        self._on_change()

    async def keep(self) -> None:
        """Watch Valkey until cancelled, and restart it if it has ended or is frozen."""
        loop = asyncio.get_running_loop()
        answered = loop.time()
        while True:
            await self._wait_for_end()
            if await self._in_thread(self._server.ping):
                answered = loop.time()
            elif not self._server.alive() or loop.time() - answered > FROZEN_S:
                await self._restart()
                answered = loop.time()

    async def _wait_for_end(self) -> None:
        """Wait until Valkey ends, for at most `CHECK_S` seconds. If the system cannot report the end of a process,
        wait for the full time.
        """
        pid, loop = self.pid, asyncio.get_running_loop()
        if pid is None or not hasattr(os, "pidfd_open"):
            await asyncio.sleep(CHECK_S)
            return
        ended = asyncio.Event()
        fd = os.pidfd_open(pid)
        loop.add_reader(fd, ended.set)
        try:
            async with asyncio.timeout(CHECK_S):
                await ended.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    async def _restart(self) -> None:
        cause = "frozen" if self._server.alive() else "gone"
        self._ends[cause] += 1
        log.error("the state server is %s; it is restarted", cause)
        wait_s = CHECK_S
        while True:
            try:
                await self._in_thread(self._server.kill)
                await self._in_thread(self._start)
            except (EmbeddedServerError, OSError) as error:
                log.error("%s", error)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
                continue
            self._on_change()
            return

    def _start(self) -> None:
        try:
            self._server.start()
        except EmbeddedServerError as error:
            # Its data are unreadable. They can be rebuilt from the ledger, so start with an empty server.
            aside = self._server.set_aside() if "ended with" in str(error) else None
            if aside is None:
                raise
            log.error("%s\nits data were moved to %s; counters are rebuilt", error, aside)
            self._server.start()

    async def stop(self) -> None:
        await self._in_thread(self._server.stop)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
