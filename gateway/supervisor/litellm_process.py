"""The process in which LiteLLM runs. It is started at the first call, and kept running from then on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

from gateway.backends.providers.litellm.process import command, listen, remove, socket_path
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Paths
from gateway.supervisor.figures import Figure
from gateway.supervisor.process import ChildProcess, spawn

log = logging.getLogger(__name__)


class LitellmProcess:
    """The one LiteLLM process for all workers of this host. The supervisor owns the listening socket, so calls that
    arrive while the process starts wait in the socket's queue."""

    def __init__(self, paths: Paths, on_change: Callable[[], None] = lambda: None) -> None:
        """Raises ConfigError if the socket cannot be created."""
        path = socket_path(paths.data)
        try:
            self._listener = listen(path)
        except OSError as error:
            raise ConfigError([f"{path}: litellm's socket cannot be created: {error.strerror}"]) from error
        self.path = str(path)
        fds = [self._listener.fileno()]
        start = partial(spawn, command(self._listener), fds=fds, silent=True)
        self.child = ChildProcess("litellm", start, on_change=on_change)

    @classmethod
    def if_installed(cls, paths: Paths, on_change: Callable[[], None]) -> LitellmProcess | None:
        """The LiteLLM process; None if litellm is not installed."""
        return cls(paths, on_change) if find_spec("litellm") else None

    async def run(self) -> None:
        """Wait for the first connection. From then on, keep the process running until cancelled."""
        loop, wanted = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._listener, wanted.set)
        try:
            await wanted.wait()
        finally:
            loop.remove_reader(self._listener)
        await self.child.keep()

    async def stop(self, timeout_s: float) -> None:
        """End the process and remove the socket. Call this only after `run` was cancelled."""
        await self.child.stop(timeout_s)
        remove(self._listener)

    def figures(self) -> Iterator[Figure]:
        yield "litellm_up", (), int(self.child.pid is not None)

    def processes(self) -> Iterator[tuple[str, int | None]]:
        yield "litellm", self.child.pid
