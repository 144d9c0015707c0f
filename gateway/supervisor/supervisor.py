"""Starts everything in the order of need, keeps it running, and takes it down in reverse without losing a stream."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson

from gateway.domain.tasks import Tasks
from gateway.policy.load import Policies
from gateway.settings.environment import variable
from gateway.settings.gateway import Settings
from gateway.supervisor.books import Books
from gateway.supervisor.child import Child, python
from gateway.supervisor.local_model import LocalModel, find_weights
from gateway.supervisor.place import STALE_S, RuntimeFile, listen, occupy, reachable
from gateway.supervisor.probe import status_of
from gateway.supervisor.state_server import StateServer

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""Beyond the drain, for a worker to close its rooms."""
STOP_S = 5.0
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Numeric libraries would start a spinning thread per core in every worker; the operator may say otherwise."""


class Supervisor:
    """The parent process of `thriftgate serve`. `run` from the main thread."""

    def __init__(
        self,
        settings: Settings,
        *,
        config: Path | None = None,
        workers: int = 1,
        host: str | None = None,
        port: int | None = None,
        simulate: bool = False,
        announce: Callable[[str], None] = log.info,
        facts: Mapping[str, Any] | None = None,
        worker_command: Sequence[str] | None = None,
    ) -> None:
        """`config`: the file that `settings` were read from. `facts`: more for runtime.json."""
        self._settings, self._config, self._count = settings, config, workers
        self._host = host or settings.config.listen.host
        self._port = settings.config.listen.port if port is None else port
        self._simulate, self._announce = simulate, announce
        self._facts = dict(facts or {})
        self._worker_command = worker_command or python("-m", "gateway.app")
        self._started_at = time.time()
        self._workers: list[Child] = []
        self._state: StateServer | None = None
        self._model: LocalModel | None = None
        self._runtime = RuntimeFile(settings.paths.runtime)
        self._tasks = Tasks()

    def run(self) -> None:
        """Until SIGTERM or SIGINT; a second one ends it without waiting for streams. Raises ConfigError before
        anything is started when files, data directory or port are not as they must be."""
        policies = Policies(self._settings.policies, self._settings.config.ceilings)
        books = Books(self._settings, policies)
        lock = occupy(self._settings.paths)
        try:
            self._socket = listen(self._host, self._port, STALE_S if self._runtime.left_behind() else 0.0)
            self._port = self._socket.getsockname()[1]
            try:
                asyncio.run(self._main(policies, books))
            finally:
                self._socket.close()
                self._runtime.remove()
        finally:
            os.close(lock)
        if books.abandoned:  # a thread still waits for a database that does not answer: do not wait with it
            os._exit(1)

    async def _main(self, policies: Policies, books: Books) -> None:
        leave = self._listen_to_signals(policies)
        async with AsyncExitStack() as exits:
            exits.push_async_callback(books.aclose)
            await asyncio.gather(self._open_state(exits), books.open())
            self._prepare_model(exits)
            exits.push_async_callback(self._tasks.aclose)  # from here on nothing is started again
            exits.push_async_callback(self._end_workers)
            self._start_workers()
            if self._state:
                self._tasks.spawn(self._state.keep(), "state server")
            self._tasks.spawn(books.run(), "ledger")
            self._tasks.spawn(policies.watch(), "policies")
            self._tasks.spawn(self._when_ready(books), "readiness")
            await leave.wait()
            self._announce("finishing open streams")

    def _listen_to_signals(self, policies: Policies) -> asyncio.Event:
        """Set by the first signal to leave."""
        leave, loop = asyncio.Event(), asyncio.get_running_loop()

        def go() -> None:
            if leave.is_set():
                self._signal_workers(signal.SIGKILL)
            leave.set()

        def reload() -> None:
            self._signal_workers(signal.SIGHUP)
            self._tasks.spawn(policies.reload(), "reload")

        loop.add_signal_handler(signal.SIGTERM, go)
        loop.add_signal_handler(signal.SIGINT, go)
        loop.add_signal_handler(signal.SIGHUP, reload)
        return leave

    async def _open_state(self, exits: AsyncExitStack) -> None:
        if self._settings.config.state.redis_url:
            return
        self._state = StateServer(self._settings.paths, self._write_facts)
        exits.push_async_callback(self._state.stop)
        await self._state.start()

    def _prepare_model(self, exits: AsyncExitStack) -> None:
        if weights := find_weights(self._settings):
            self._model = LocalModel(self._settings, weights, self._write_facts)
            exits.push_async_callback(self._model.child.stop, STOP_S)

    def _start_workers(self) -> None:
        self._worker_tasks = Tasks()
        for number in range(self._count):
            child = Child(
                f"worker {number}",
                self._worker_command,
                environment=self._worker_environment(number),
                fds=[self._socket.fileno()],
                on_change=self._write_facts,
            )
            self._workers.append(child)
            self._worker_tasks.spawn(child.keep(), child.name)

    def _worker_environment(self, number: int) -> dict[str, str]:
        told = {
            "fd": self._socket.fileno(),
            "config": str(self._config.absolute()) if self._config else None,
            "data_dir": str(self._settings.paths.data),
            "policies": [str(folder.absolute()) for folder in self._settings.policies],
            "redis_url": self._state.url if self._state else self._settings.config.state.redis_url,
            "local_model_url": self._model.url if self._model else None,
            "simulate": self._simulate,
            "worker": number,
            "workers": self._count,
        }
        threads = {name: variable(name) or "1" for name in ONE_THREAD}
        return {"THRIFTGATE_WORKER": orjson.dumps(told).decode(), **threads}

    async def _when_ready(self, books: Books) -> None:
        """Say so; only then start what would compete with the workers for the processor."""
        host = reachable(self._host)
        while await status_of(host, self._port, "/health/ready", 1.0) != 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.03)
        self._announce(f"listening on {self._url}")
        self._tasks.spawn(books.alert(), "alerts")
        if self._model:
            self._tasks.spawn(self._model.child.keep(), "local model")
            self._tasks.spawn(self._model.watch(), "local model watch")

    async def _end_workers(self) -> None:
        """No new ones; those that run finish their streams."""
        self._socket.close()
        await self._worker_tasks.aclose()
        patience_s = self._settings.config.requests.drain + GRACE_S
        await asyncio.gather(*(worker.stop(patience_s) for worker in self._workers))

    def _signal_workers(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.signal(number)

    @property
    def _url(self) -> str:
        host = reachable(self._host)
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    def _write_facts(self) -> None:
        state, model = self._state, self._model
        self._runtime.write(
            {
                "pid": os.getpid(),
                "host": reachable(self._host),
                "port": self._port,
                "url": self._url,
                "started_at": self._started_at,
                "workers": [worker.pid for worker in self._workers if worker.pid],
                "valkey": {"pid": state.pid, "url": state.url} if state else None,
                "local_model": {"pid": model.child.pid, "port": model.port, "url": model.url} if model else None,
                **self._facts,
            }
        )
