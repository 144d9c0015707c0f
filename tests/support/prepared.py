"""Starts commands of `thriftgate` in processes of their own that need not import the gateway first.

A start of `thriftgate serve` computes for more than half a second, nearly all of it for imports, and the tests start it
hundreds of times. So one process of each test run imports the gateway once, before it has a thread, an event loop or an
open file, and each start forks it (`python -m tests.support.prepared`). What is forked is a process like any other: its
own session, environment, streams, folder and exit status. Starts whose subject is the start itself use
`subprocess.Popen`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import orjson

REPOSITORY = Path(__file__).parents[2]
MODULES = ("gateway.cli.main", "gateway.cli.run.serve", "gateway.supervisor.supervisor")
"""Imported beside what the fork server imports for the workers."""
START_S = 60.0
_MOST_BYTES = 131072
_NUMBER = struct.Struct("i")


class PreparedProcess:
    """A running command, steered as a `subprocess.Popen`."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        with self._lock:
            code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("thriftgate", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended in between
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()  # unlike select, it takes numbers above 1023
            poll.register(self._status, select.POLLIN)
            if not poll.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            (self.returncode,) = _NUMBER.unpack(self._status.recv(_NUMBER.size))
            self._status.close()
        return self.returncode


_one_at_a_time = threading.Lock()
_template: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
"""The process that is forked, once it runs, and this end of its control socket."""


def start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    output: int,
    *,
    errors: int | None = None,
    folder: Path = REPOSITORY,
    script: Path | None = None,
) -> PreparedProcess:
    """`thriftgate` with `arguments`, or the Python file `script`, in `folder` and in a session of its own. What it
    writes goes to the file descriptors `output` and `errors` (default: `output`). Raises RuntimeError if it cannot be
    started."""
    status, theirs = socket.socketpair()
    message = orjson.dumps(
        {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder.absolute()),
            "script": str(script or ""),
        }
    )
    with theirs, _one_at_a_time:
        socket.send_fds(_control(), [message], [output, output if errors is None else errors, theirs.fileno()])
    status.settimeout(START_S)
    number = status.recv(_NUMBER.size)
    if not number:
        status.close()
        raise RuntimeError("the process that starts commands has ended")
    status.settimeout(None)
    (pid,) = _NUMBER.unpack(number)
    return PreparedProcess(pid, status)


def run(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, timeout_s: float = START_S
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with captured output. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(arguments, environment, output.fileno(), errors=errors.fileno(), folder=folder)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, output.read().decode(), errors.read().decode())


def prepare() -> None:
    """Start the process that is forked; processes of tests that are forked after this share it."""
    _control()


def _control() -> socket.socket:
    if not _template:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.prepared"],
                stdin=theirs.fileno(),
                cwd=REPOSITORY,
                start_new_session=True,
            )
        _template.append((process, ours))
        atexit.register(_end)
    return _template[0][1]


def _end() -> None:
    process, control = _template.pop()
    control.close()
    process.wait(timeout=START_S)


def main() -> None:
    """Be the process that is forked, until the control socket is closed."""
    from gateway.runtime.garbage_collection import postponed
    from gateway.supervisor.fork_server import IMPORTED

    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    with postponed():
        for module in (*MODULES, *IMPORTED):
            importlib.import_module(module)
    while True:
        data, fds, _, _ = socket.recv_fds(control, _MOST_BYTES, 3)
        if not data:
            break
        if os.fork() == 0:
            control.close()
            _watch(orjson.loads(data), *fds)
        for fd in fds:
            os.close(fd)
        _reap()
    _reap()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _watch(asked: Mapping[str, Any], output: int, errors: int, status: int) -> NoReturn:
    """Start the command, and tell its process id and, when it has ended, its exit status."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _run(asked, output, errors)
    os.close(output)
    os.close(errors)
    os.write(status, _NUMBER.pack(pid))
    _, ended = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, _NUMBER.pack(os.waitstatus_to_exitcode(ended)))
    os._exit(0)


def _run(asked: Mapping[str, Any], output: int, errors: int) -> NoReturn:
    os.setsid()
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    gc.enable()
    code: object = 0
    try:
        if asked["script"]:
            sys.argv[:] = [asked["script"], *asked["arguments"]]
            runpy.run_path(asked["script"], run_name="__main__")
        else:
            from gateway.cli import main as cli

            sys.argv[:] = [str(cli.__file__), *asked["arguments"]]
            cli.main()
    except SystemExit as leaving:
        code = leaving.code
    sys.exit(code if isinstance(code, int) or code is None else 1)


if __name__ == "__main__":
    main()
