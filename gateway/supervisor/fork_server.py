"""The process that workers are forked from; itself forked before any thread, loop or file exists.

Everything that a worker imports is in its memory already: a worker starts in a fraction of the time, and shares those
pages with the supervisor and the other workers. Each is forked twice, so that it becomes the child of the supervisor
(its nearest `subreaper`), who waits for it as for any other and takes it along when it dies.

The nursery itself comes and goes. The more its children write, the fewer pages it shares with them, so it ends when all
of them are ready. When another is wanted, a worker that died or a rolling restart, it begins anew as a program,
`python -m gateway.supervisor.fork_server`, whose standard input is the control socket.
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
"""Its own start may be part of it."""
ADOPTED_S = 5.0
_MOST_BYTES = 131072
IMPORTED = ("gateway.supervisor.worker", "gateway.state.redis.unix", "sqlalchemy.dialects.sqlite", "uvloop")
"""What the usual worker imports, at its start or a moment later."""


class ForkServerGone(Exception):
    """This one was not forked: spawn it instead."""


class Forked:
    """A worker that the nursery forked, as a child of this process. Belongs to the running loop."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = loop.create_future()
        self._fd = os.pidfd_open(pid)
        loop.add_reader(self._fd, self._bury)

    def _bury(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set_result(self.returncode)

    async def wait(self) -> int:
        """Its exit status; negative is the signal that ended it."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:  # until it is buried, the number is its own
            os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class _Life:
    """One nursery, from fork or start to end."""

    control: socket.socket
    pid: int

    def end(self) -> None:
        self.control.close()
        os.kill(self.pid, signal.SIGKILL)  # until it is waited for, the number is its own
        os.waitpid(self.pid, 0)


class ForkServer:
    """The supervisor's side. Belongs to the main thread: the process ends with that thread."""

    def __init__(self, life: _Life) -> None:
        self._life: _Life | None = life
        self._turn = asyncio.Lock()

    @classmethod
    def open(cls) -> ForkServer | None:
        """Call it from the main thread, before anything else is. None where a fork is not safe: then spawn."""
        if why := _unsafe():
            log.info("workers are started one by one instead of forked: %s", why)
            return None
        if why := _prepare():
            log.warning("workers are started one by one instead of forked: %s", why)
            return None
        return cls(_forked())

    async def fork(self, told: Mapping[str, Any], fds: Mapping[str, int]) -> Forked:
        """A worker that knows `told` and has `fds` under their names. Raises ForkServerGone, OSError."""
        async with self._turn:
            self._life = self._life or _program()
            control = self._life.control
            try:
                async with asyncio.timeout(REPLY_S):
                    said = orjson.dumps({"told": told, "fds": list(fds)})
                    socket.send_fds(control, [said], list(fds.values()))
                    reply = await asyncio.get_running_loop().sock_recv(control, _MOST_BYTES)
            except (OSError, TimeoutError, asyncio.CancelledError) as error:
                self.rest()  # whatever it still says is the answer to a question that nobody asks any more
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise ForkServerGone(f"the nursery does not answer: {error!r}") from error
            if not reply:
                self.rest()
                raise ForkServerGone("the nursery has ended")
        answer = orjson.loads(reply)
        if "error" in answer:
            raise OSError(answer["error"])
        return Forked(answer["pid"])

    def rest(self) -> None:
        """End the process; the workers stay, and the next `fork` begins it anew."""
        if self._life:
            self._life.end()
            self._life = None


def _prepare() -> str:
    """Import what workers need. Why nothing may be forked afterwards; empty when it may."""
    one_heap()
    for module in IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # the collector would write into every page
    return _threaded()


def _forked() -> _Life:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _nurse(theirs, parent)
    theirs.close()
    return _Life(ours, pid)


def _program() -> _Life:
    """For later, when a fork of this process is not safe any more. Raises OSError."""
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
    return _Life(ours, pid)


def _unsafe() -> str:
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return "this system is not Linux, or an old one"
    if why := _threaded():
        return why
    return (
        ""
        if parent_death.prctl(parent_death.PR_SET_CHILD_SUBREAPER, 1)
        else "the kernel does not let this process adopt them"
    )


def _threaded() -> str:
    """Threads do not survive a fork, but the locks that they hold do."""
    running = len(os.listdir("/proc/self/task"))
    return "" if running == 1 else f"{running} threads run already"


def _nurse(control: socket.socket, supervisor: int) -> NoReturn:
    """The nursery's life. It never returns into the supervisor's code."""
    try:
        os.setsid()  # Ctrl-C is for the supervisor
        if parent_death.tie(supervisor):
            parent_death.prctl(parent_death.PR_SET_NAME, b"tg-nursery")
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.close(null)
            while _serve_one(control, supervisor):
                pass
    except BaseException:
        log.exception("the nursery failed")
    finally:
        os._exit(0)


def _serve_one(control: socket.socket, supervisor: int) -> bool:
    data, fds, _, _ = socket.recv_fds(control, _MOST_BYTES, 8)
    if not data:
        return False
    asked = orjson.loads(data)
    told = {**asked["told"], **dict(zip(asked["fds"], fds, strict=True))}
    try:
        answer: dict[str, Any] = {"pid": _fork_twice(control, told, supervisor)}
    except OSError as error:
        answer = {"error": str(error)}
    for fd in fds:
        os.close(fd)
    control.send(orjson.dumps(answer))
    return True


def _fork_twice(control: socket.socket, told: Mapping[str, Any], supervisor: int) -> int:
    """The worker's pid, once it has no parent here any more. Raises OSError."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            worker = os.fork()
            if worker == 0:
                os.close(reader)
                os.close(writer)
                control.close()
                _live(told, supervisor)
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


def _live(told: Mapping[str, Any], supervisor: int) -> NoReturn:
    """A worker's life, from fork to exit."""
    status = 1
    try:
        os.setsid()
        if _adopted(supervisor):
            parent_death.prctl(parent_death.PR_SET_NAME, f"tg-worker-{told['worker']}".encode())
            from gateway.supervisor import worker

            worker.run(told)
            status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        log.exception("worker %s failed", told.get("worker"))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # not the way that the supervisor's interpreter would end


def _adopted(supervisor: int) -> bool:
    """Wait until the process between has ended; the kernel would have tied us to that one."""
    deadline = time.monotonic() + ADOPTED_S
    while os.getppid() != supervisor:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return parent_death.tie(supervisor)


def main() -> None:
    """The nursery as a program of its own; its word is the supervisor's pid."""
    control = socket.socket(fileno=os.dup(0))
    with postponed():
        why = _prepare()
    if why:
        log.warning("the nursery cannot fork: %s", why)
        return
    _nurse(control, int(sys.argv[1]))


if __name__ == "__main__":
    main()
