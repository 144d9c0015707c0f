"""The fork server: the process from which workers are forked. The supervisor forks it early, while the supervisor
itself has no thread, no event loop and no open file.

The fork server has already imported the modules of a worker. A forked worker therefore starts in a fraction of the
time, and shares the memory pages of these modules with the other workers. Each worker is forked through an intermediate
process. When the intermediate process has ended, the kernel makes the worker a child of the supervisor, which is the
nearest `subreaper`. The supervisor waits for a worker as for any child, and the worker ends when the supervisor ends.

When a worker writes to a shared page, it gets a copy, and the fork server still keeps the old page, which costs memory.
So the fork server ends when all workers are ready. If a worker must be replaced, or a rolling restart begins, the fork
server is started again as a program: `python -m gateway.supervisor.fork_server`, with the control socket as standard
input.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from gateway.runtime.garbage_collection import one_heap, postponed
from gateway.settings.environment import child_environment
from gateway.supervisor import parent_death

log = logging.getLogger(__name__)

REPLY_S = 15.0
"""Maximum seconds to wait for the fork of one worker, including the start of the fork server if it is not running."""
ADOPTED_S = 5.0
_MOST_BYTES = 131072
IMPORTED = (
    "gateway.supervisor.worker",
    "gateway.state.redis.unix",
    "sqlalchemy.dialects.sqlite",
    "sqlite3",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "gateway.alerts.alerts",
    "gateway.alerts.delivery.receivers",
    "gateway.alerts.detect.weekly_report",
)
"""Modules that every worker with the default settings, or the supervisor, imports soon after its start. An import after
the fork writes reference counts into pages that the processes could share: the alerts' modules take 1 MiB when they
are imported before it, and 9 MiB afterwards."""


class ForkServerGone(Exception):
    """Raised if the fork server did not fork the worker. The supervisor must start the worker as a program instead."""


class Forked:
    """A worker that the fork server has forked, as a `Process`. Its parent process is the supervisor. Use the object in
    only one event loop."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = loop.create_future()
        self._fd = os.pidfd_open(pid)
        loop.add_reader(self._fd, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set_result(self.returncode)

    async def wait(self) -> int:
        """Wait until the worker ends, and return its exit status. A negative status is the number of the signal that
        ended it."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:  # until waitpid, no other process can get this pid
            os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class _ServerProcess:
    """A running fork server. The object has its process id and the supervisor's end of the control socket."""

    control: socket.socket
    pid: int

    def end(self) -> None:
        self.control.close()
        os.kill(self.pid, signal.SIGKILL)  # until waitpid, no other process can get this pid
        os.waitpid(self.pid, 0)


class ForkServer:
    """Forks workers through the fork server. Use it in the main thread, because the fork server ends with the thread
    that started it."""

    def __init__(self, process: _ServerProcess) -> None:
        self._process: _ServerProcess | None = process
        self._lock = asyncio.Lock()

    @classmethod
    def open(cls) -> ForkServer | None:
        """Start the fork server by forking this process. Returns None if this system cannot fork safely. Call it in the
        main thread, before there is another thread, an event loop or an open file."""
        if why := _unsafe():
            log.info("workers are started one by one instead of forked: %s", why)
            return None
        if why := _prepare():
            log.warning("workers are started one by one instead of forked: %s", why)
            return None
        return cls(_forked())

    async def fork(self, settings: Mapping[str, Any], fds: Mapping[str, int]) -> Forked:
        """Fork a worker with `settings`. `fds`: name → file descriptor. The worker gets copies of the descriptors. The
        numbers of the copies are added to its settings under the same names. Raises ForkServerGone; OSError if the
        fork failed.
        """
        async with self._lock:
            self._process = self._process or _program()
            control = self._process.control
            try:
                async with asyncio.timeout(REPLY_S):
                    message = orjson.dumps({"settings": settings, "fds": list(fds)})
                    socket.send_fds(control, [message], list(fds.values()))
                    reply = await asyncio.get_running_loop().sock_recv(control, _MOST_BYTES)
            except (OSError, TimeoutError, asyncio.CancelledError) as error:
                self.stop()  # a late reply would be read as the reply to the next request
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise ForkServerGone(f"the fork server does not answer: {error!r}") from error
            if not reply:
                self.stop()
                raise ForkServerGone("the fork server has ended")
        answer = orjson.loads(reply)
        if "error" in answer:
            raise OSError(answer["error"])
        return Forked(answer["pid"])

    def stop(self) -> None:
        """End the fork server's process. Workers continue to run, and the next call of `fork` starts a new fork
        server."""
        if self._process:
            self._process.end()
            self._process = None


def _prepare() -> str:
    """Import the modules that workers need. Returns the reason why forking is unsafe after these imports; empty if it
    is safe."""
    one_heap()
    for module in IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # the collector would write into every page
    return _threaded()


def _forked() -> _ServerProcess:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run_server(theirs, parent)
    theirs.close()
    return _ServerProcess(ours, pid)


def _program() -> _ServerProcess:
    """Start the fork server as a program, because the supervisor has threads by now and cannot fork safely. Raises
    OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    command = [sys.executable, "-m", "gateway.supervisor.fork_server", str(os.getpid())]
    try:
        pid = os.posix_spawn(
            command[0],
            command,
            child_environment({}),
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return _ServerProcess(ours, pid)


def _unsafe() -> str:
    """The reason why this process cannot fork workers; empty if it can."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return "this system is not Linux, or an old one"
    if why := _threaded():
        return why
    return (
        ""
        if parent_death.prctl(parent_death.PR_SET_CHILD_SUBREAPER, 1)
        else "the kernel does not let this process become their parent"
    )


def _threaded() -> str:
    """A text that says that forking is unsafe because this process has other threads; empty if it has none."""
    running = len(os.listdir("/proc/self/task"))
    return "" if running == 1 else f"{running} threads run already"


def _run_server(control: socket.socket, supervisor: int) -> NoReturn:
    """Run the fork server: fork workers until the control socket is closed, then end the process. Never returns."""
    try:
        os.setpgid(0, 0)  # Ctrl-C goes to the supervisor only
        parent_death.keep_writing()
        if parent_death.die_with(supervisor):
            parent_death.prctl(parent_death.PR_SET_NAME, b"tg-fork-server")
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.close(null)
            while _serve_one(control, supervisor):
                pass
    except BaseException:
        log.exception("the fork server failed")
    finally:
        os._exit(0)


def _serve_one(control: socket.socket, supervisor: int) -> bool:
    """Wait for one request and fork one worker. Returns False if the supervisor has closed the control socket."""
    data, fds, _, _ = socket.recv_fds(control, _MOST_BYTES, 8)
    if not data:
        return False
    asked = orjson.loads(data)
    settings = {**asked["settings"], **dict(zip(asked["fds"], fds, strict=True))}
    try:
        answer: dict[str, Any] = {"pid": _fork_twice(control, settings, supervisor)}
    except OSError as error:
        answer = {"error": str(error)}
    for fd in fds:
        os.close(fd)
    control.send(orjson.dumps(answer))
    return True


def _fork_twice(control: socket.socket, settings: Mapping[str, Any], supervisor: int) -> int:
    """Fork an intermediate process, which forks the worker and ends. Returns the worker's process id. Raises
    OSError."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            worker = os.fork()
            if worker == 0:
                os.close(reader)
                os.close(writer)
                control.close()
                _run_worker(settings, supervisor)
            os.write(writer, str(worker).encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        pid = os.read(reader, 20)
    finally:
        os.close(reader)
        os.waitpid(between, 0)
    if not pid:
        raise OSError("the second fork failed: no memory, or no processes left")
    return int(pid)


def _run_worker(settings: Mapping[str, Any], supervisor: int) -> NoReturn:
    """Run the worker in this process, which was just forked, and then exit. Never returns."""
    status = 1
    try:
        os.setpgid(0, 0)  # in the supervisor's session, because the kernel shares out a core by sessions first
        if _adopted(supervisor):
            parent_death.prctl(parent_death.PR_SET_NAME, f"tg-worker-{settings['worker']}".encode())
            from gateway.supervisor import worker

            worker.run(settings)
            status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        log.exception("worker %s failed", settings.get("worker"))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # skips the exit handlers inherited from the supervisor


def _adopted(supervisor: int) -> bool:
    """Wait until the supervisor is the parent of this process, and make this process end when the supervisor ends.
    Returns False if the supervisor did not become the parent in time."""
    deadline = time.monotonic() + ADOPTED_S
    while os.getppid() != supervisor:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return parent_death.die_with(supervisor)


def main() -> None:
    """Run the fork server as a program. The program's argument is the process id of the supervisor."""
    control = socket.socket(fileno=os.dup(0))
    with postponed():
        why = _prepare()
    if why:
        log.warning("the fork server cannot fork: %s", why)
        return
    _run_server(control, int(sys.argv[1]))


if __name__ == "__main__":
    main()
