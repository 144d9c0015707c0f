"""Starts all processes in order, keeps them running, and stops them in reverse order without interrupting a stream."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from gateway.policy.kept import keep
from gateway.policy.load import Policies
from gateway.runtime.garbage_collection import postponed, settle
from gateway.runtime.tasks import Tasks
from gateway.settings.environment import define, variable
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings
from gateway.supervisor.accepted import Accepted
from gateway.supervisor.figures import Figures, SupervisorFigures
from gateway.supervisor.fork_server import ForkServer, ForkServerGone
from gateway.supervisor.heartbeat import WORKER_VARIABLE
from gateway.supervisor.ledger_service import LedgerService
from gateway.supervisor.litellm_process import LitellmProcess
from gateway.supervisor.local_model import LocalModel, find_weights
from gateway.supervisor.process import Process, python, spawn
from gateway.supervisor.refits import Refits
from gateway.supervisor.runtime_dir import STALE_S, RuntimeFile, lift_file_limit, listen, occupy, reachable
from gateway.supervisor.state_server import StateServer
from gateway.supervisor.workers import WorkerPool

log = logging.getLogger(__name__)

STOP_S = 5.0
ALERTS_AFTER_S = 2.0
"""Seconds from the first ready worker to the start of the alerts. The first requests need the CPU in these seconds, and
the start of the alerts takes 30 ms of it."""
POLICIES_S = 1.0
"""Seconds between checks for changed policies. The supervisor needs the policies for alerts. It also keeps a copy of
the policy files, with which a worker can start while a policy file is invalid."""
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that are set to 1 unless the operator has set them. If these variables were not set, numeric
libraries would start one thread per core in every worker."""


class Supervisor:
    """The parent process of `thriftgate serve`. Call `run` in the main thread, while there is no other thread."""

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
        on_ready: Callable[[], None] = lambda: None,
        facts: Mapping[str, Any] | None = None,
        worker_command: Sequence[str] | None = None,
    ) -> None:
        """`config`: the file of `settings`. `facts`: further entries of runtime.json. `worker_command`: the command
        that starts a worker; None: workers are forked. `announce`: shows a line to the user. `on_ready`: called when
        the first worker answers."""
        self._settings, self._count = settings, workers
        self._accepted = Accepted(settings, config)
        self._config = config
        self._host = host or settings.config.listen.host
        self._port = settings.config.listen.port if port is None else port
        self._simulate, self._announce, self._on_ready = simulate, announce, on_ready
        self._facts = dict(facts or {})
        self._worker_command = worker_command
        self._started_at = time.time()
        self._workers = WorkerPool(workers, self._launch, self._workers_changed)
        self._rolling = asyncio.Event()
        self._fork_server: ForkServer | None = None
        self._state: StateServer | None = None
        self._model: LocalModel | None = None
        self._litellm: LitellmProcess | None = None
        self._runtime = RuntimeFile(settings.paths.runtime)
        self._tasks = Tasks()

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. A second signal kills the workers. If the files, the data directory or the port
        cannot be used, raises ConfigError before any process starts."""
        policies = Policies(self._settings.policies, self._settings.config.ceilings, logged=False)
        for old_names in (self._settings.old_names, *policies.current.old_names.values()):
            if old_names:
                log.warning("old names of settings:\n%s", "\n".join(each.line for each in old_names))
        lift_file_limit()
        for name in ONE_THREAD:
            define(name, variable(name) or "1")
        if self._worker_command is None:
            with postponed():
                self._fork_server = ForkServer.open()
        try:
            self._run(policies)
        finally:
            if self._fork_server:
                self._fork_server.stop()

    def _run(self, policies: Policies) -> None:
        books = LedgerService(self._settings, policies, known=lambda: self._settings.known_receivers)
        lock = occupy(self._settings.paths)
        try:
            self._accepted.keep()
            keep(self._settings.paths.policies, policies.current.files)
            self._figures = Figures(self._settings.paths.figures)
            self._socket = listen(self._host, self._port, STALE_S if self._runtime.left_behind() else 0.0)
            self._port = self._socket.getsockname()[1]
            try:
                asyncio.run(self._main(policies, books))
            finally:
                self._socket.close()
                self._figures.close()
                self._runtime.remove()
        finally:
            os.close(lock)

    async def _main(self, policies: Policies, books: LedgerService) -> None:
        stop = self._listen_to_signals(policies)
        async with AsyncExitStack() as exits:
            exits.push_async_callback(books.aclose)
            await asyncio.gather(self._open_state(exits), books.open())
            self._prepare_model(exits)
            self._prepare_litellm(exits)
            exits.push_async_callback(self._tasks.aclose)
            policies.on_change(partial(self._copy_policies, policies))
            watching = self._tasks.spawn(self._watch_rolls(policies), "rolling restarts")
            exits.push_async_callback(self._stop_workers)
            exits.callback(watching.cancel)  # from here on, no rolling restart begins
            self._workers.start()
            self._tasks.spawn(self._workers.watch(), "workers")
            if self._state:
                self._tasks.spawn(self._state.keep(), "state server")
            parts: list[SupervisorFigures | None] = [books, self._workers, self._state, self._model, self._litellm]
            self._tasks.spawn(self._figures.run(part for part in parts if part), "figures")
            self._tasks.spawn(books.run(), "ledger")
            self._tasks.spawn(policies.watch(POLICIES_S), "policies")
            self._tasks.spawn(self._when_ready(books), "readiness")
            refits = Refits(self._settings.paths.data / "refit" / "due", self._refit_command)
            exits.push_async_callback(refits.aclose)
            self._tasks.spawn(refits.run(), "refits")
            settle()
            await stop.wait()
            self._announce("finishing open streams")
        if books.abandoned:
            self._exit_without_threads()

    def _refit_command(self) -> list[str] | None:
        """The command that fits a new plan; None if `routing.refit` is `never`."""
        if self._settings.config.routing.refit == "never":
            return None
        words = ["--config", str(self._accepted.path), "--data-dir", str(self._settings.paths.data)]
        for folder in self._settings.policies:
            words += ["--policies", str(folder.absolute())]
        return python("-m", "gateway.cli.main", "router", "refit", *words)

    def _copy_policies(self, policies: Policies) -> None:
        work = asyncio.to_thread(keep, self._settings.paths.policies, policies.current.files)
        self._tasks.spawn(work, "policies kept")

    def _exit_without_threads(self) -> None:
        """Exit the process at once. A regular end would close the event loop, which could wait forever for a thread."""
        log.info("exiting without waiting for the database")
        self._runtime.remove()
        if self._fork_server:
            self._fork_server.stop()
        os._exit(0)  # everything else is closed, the journal has the spend, and the kernel releases the lock

    def _listen_to_signals(self, policies: Policies) -> asyncio.Event:
        """Install the signal handlers. Returns an event that is set by the first SIGTERM or SIGINT."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def go() -> None:
            if stop.is_set():
                self._workers.kill()
            stop.set()

        def reload() -> None:
            self._workers.reload()
            self._tasks.spawn(policies.reload(), "reload")

        loop.add_signal_handler(signal.SIGTERM, go)
        loop.add_signal_handler(signal.SIGINT, go)
        loop.add_signal_handler(signal.SIGHUP, reload)
        loop.add_signal_handler(signal.SIGUSR2, self._rolling.set)
        return stop

    async def _open_state(self, exits: AsyncExitStack) -> None:
        if self._settings.config.state.redis_url:
            return
        most = self._settings.config.state.max_memory_bytes
        self._state = StateServer(self._settings.paths, self._write_facts, max_memory_bytes=most)
        exits.push_async_callback(self._state.stop)
        await self._state.start()

    def _prepare_model(self, exits: AsyncExitStack) -> None:
        if weights := find_weights(self._settings):
            self._model = LocalModel(self._settings, weights, self._write_facts)
            exits.push_async_callback(self._model.child.stop, STOP_S)

    def _prepare_litellm(self, exits: AsyncExitStack) -> None:
        self._litellm = LitellmProcess.if_installed(self._settings.paths, self._write_facts)
        if self._litellm:
            exits.push_async_callback(self._litellm.stop, STOP_S)
            self._tasks.spawn(self._litellm.run(), "litellm")

    async def _launch(self, number: int, heartbeat: int) -> Process:
        """Launch worker `number`: fork it, or start it as a program if it cannot be forked. Raises OSError."""
        settings = {
            "config": str(self._accepted.path),
            "data_dir": str(self._settings.paths.data),
            "policies": [str(folder.absolute()) for folder in self._settings.policies],
            "redis_url": self._state.own_url if self._state else self._settings.config.state.redis_url,
            "local_model_url": self._model.url if self._model else None,
            "litellm_socket": self._litellm.path if self._litellm else None,
            "simulate": self._simulate,
            "worker": number,
            "workers": self._count,
        }
        fds = {"fd": self._socket.fileno(), "heartbeat": heartbeat}
        if self._fork_server:
            try:
                return await self._fork_server.fork(settings, fds)
            except ForkServerGone as error:
                log.error("%s: worker %d is started as a program, so it needs more memory", error, number)
        command = self._worker_command or python("-m", "gateway.supervisor.worker")
        environment = {WORKER_VARIABLE: orjson.dumps({**settings, **fds}).decode()}
        return await spawn(command, environment=environment, fds=list(fds.values()))

    def _workers_changed(self) -> None:
        if self._fork_server and self._workers.at_rest:
            self._fork_server.stop()
        self._write_facts()

    async def _when_ready(self, books: LedgerService) -> None:
        """Wait until a worker answers requests, and announce this. Only then start the local model and, a little later,
        the alerts. They would slow down the worker's start and its first requests."""
        await self._workers.ready()
        self._announce(f"listening on {self._url}")
        self._on_ready()
        if self._model:
            self._tasks.spawn(self._model.child.keep(), "local model")
            self._tasks.spawn(self._model.watch(), "local model watch")
        await asyncio.sleep(ALERTS_AFTER_S)
        self._tasks.spawn(books.alert(), "alerts")

    async def _watch_rolls(self, policies: Policies) -> None:
        """Do a rolling restart after each SIGUSR2, until cancelled. If several signals arrive during a restart, one
        more restart follows."""
        while True:
            await self._rolling.wait()
            self._rolling.clear()
            self._workers.note_refusal(await self._roll(policies))

    async def _roll(self, policies: Policies) -> str:
        """Do a rolling restart. Returns an empty text if it was completed, otherwise the reason why not; /health shows
        this reason."""
        before = self._settings.config.shutdown.grace_period
        try:
            self._settings = self._accepted.renew()
        except ConfigError as error:
            log.error("no rolling restart; the workers keep their present settings:\n%s", error)
            return "gateway.yaml was refused, see the log"
        log.info("rolling restart begins")
        done = await self._workers.roll(before)
        if done:
            await policies.adopt(self._settings.config.ceilings)
        else:
            self._settings = self._accepted.revert()
        if done == self._count:
            log.info("rolling restart done")
            return ""
        log.error("rolling restart stopped after %d of %d: a replacement did not become ready", done, self._count)
        return "the last rolling restart was given up, see the log"

    async def _stop_workers(self) -> None:
        """Stop accepting connections. Then end the workers as soon as their streams are finished."""
        shutdown = self._settings.config.shutdown
        self._socket.close()
        await self._workers.stop(shutdown.drain_delay, shutdown.grace_period)

    @property
    def _url(self) -> str:
        host = reachable(self._host)
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    def _write_facts(self) -> None:
        state, model, litellm = self._state, self._model, self._litellm
        self._runtime.write(
            {
                "pid": os.getpid(),
                "host": reachable(self._host),
                "port": self._port,
                "url": self._url,
                "started_at": self._started_at,
                "config": str(self._config.absolute()) if self._config else None,
                "policies": [str(folder.absolute()) for folder in self._settings.policies],
                "workers": self._workers.pids,
                "troubles": self._workers.troubles,
                "valkey": {"pid": state.pid, "url": state.url} if state else None,
                "local_model": {"pid": model.child.pid, "port": model.port, "url": model.url} if model else None,
                "litellm": {"pid": litellm.child.pid} if litellm else None,
                **self._facts,
            }
        )
