"""The process that workers are forked from, itself forked before there is a thread, a loop or a file to tear.

Everything that a worker imports is in its memory already: a worker starts in a fraction of the time, and shares those
pages with the supervisor and the other workers. Each is forked twice, so that it becomes the child of the supervisor
(its nearest `subreaper`), who waits for it as for any other and takes it along when it dies; the nursery itself may
come and go.
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
from typing import Any, NoReturn

import orjson

from gateway.supervisor import tether

log = logging.getLogger(__name__)

REPLY_S = 10.0
ADOPTED_S = 5.0
_MOST_BYTES = 131072
IMPORTED = ("gateway.supervisor.worker", "gateway.state.unix", "sqlalchemy.dialects.sqlite", "uvloop")
"""What the usual worker imports, at its start or a moment later."""


class NurseryGone(Exception):
    """Nobody forks any more: spawn instead."""


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


class Nursery:
    """The supervisor's side."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control, self.pid = control, pid
        self._control.setblocking(False)
        self._turn = asyncio.Lock()

    @classmethod
    def open(cls) -> Nursery | None:
        """Call it from the main thread, before anything else is. None where a fork is not safe: then spawn."""
        if why := _unsafe():
            log.info("workers are started one by one instead of forked: %s", why)
            return None
        for module in IMPORTED:
            importlib.import_module(module)
        if why := _threaded():
            log.warning("workers are started one by one instead of forked: %s", why)
            return None
        gc.collect()
        gc.freeze()  # the collector would write into every page
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _nurse(theirs, parent)
        theirs.close()
        return cls(ours, pid)

    async def fork(self, told: Mapping[str, Any], fds: Mapping[str, int]) -> Forked:
        """A worker that knows `told` and has `fds` under their names. Raises NurseryGone, OSError."""
        async with self._turn:
            try:
                async with asyncio.timeout(REPLY_S):
                    said = orjson.dumps({"told": told, "fds": list(fds)})
                    socket.send_fds(self._control, [said], list(fds.values()))
                    reply = await asyncio.get_running_loop().sock_recv(self._control, _MOST_BYTES)
            except (OSError, TimeoutError, asyncio.CancelledError) as error:
                self.close()  # whatever it still says is the answer to a question that nobody asks any more
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise NurseryGone(f"the nursery does not answer: {error!r}") from error
        if not reply:
            self.close()
            raise NurseryGone("the nursery has ended")
        answer = orjson.loads(reply)
        if "error" in answer:
            raise OSError(answer["error"])
        return Forked(answer["pid"])

    def close(self) -> None:
        """End it; the workers stay."""
        if self._control.fileno() < 0:
            return
        self._control.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _unsafe() -> str:
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return "this system is not Linux, or an old one"
    if why := _threaded():
        return why
    return "" if tether.prctl(tether.PR_SET_CHILD_SUBREAPER, 1) else "the kernel does not let this process adopt them"


def _threaded() -> str:
    """Threads do not survive a fork, but the locks that they hold do."""
    running = len(os.listdir("/proc/self/task"))
    return "" if running == 1 else f"{running} threads run already"


def _nurse(control: socket.socket, supervisor: int) -> NoReturn:
    """The nursery's life. It never returns into the supervisor's code."""
    try:
        os.setsid()  # Ctrl-C is for the supervisor
        if tether.tie(supervisor):
            tether.prctl(tether.PR_SET_NAME, b"tg-nursery")
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
            tether.prctl(tether.PR_SET_NAME, f"tg-worker-{told['worker']}".encode())
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
    return tether.tie(supervisor)
