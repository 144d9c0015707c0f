"""Processes that a measurement starts: each on its core, ended by us, and by the kernel if we are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson

from gateway.settings.environment import child_environment
from gateway.supervisor import parent_death

REPOSITORY = Path(__file__).parents[1]
START_S = 60.0
_PRIVATE = ("OTEL_", "THRIFTGATE_")
"""Variables of the operator's own gateway must not steer the measured one."""


def python_of(checkout: Path) -> str:
    """The interpreter of its own virtual environment, if it is another checkout than this one and has any."""
    own = checkout / ".venv" / "bin" / "python"
    return str(own) if checkout != REPOSITORY and own.is_file() else sys.executable


@dataclass(frozen=True, slots=True)
class Cores:
    """Two cores where there are two: what is measured on one, everything else on the other."""

    measured: int
    others: int

    @classmethod
    def available(cls) -> Cores:
        cores = sorted(os.sched_getaffinity(0))
        return cls(cores[0], cores[-1])


def start(
    command: Sequence[str],
    core: int,
    *,
    log: IO[bytes] | int = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    piped: bool = False,
    checkout: Path = REPOSITORY,
) -> subprocess.Popen[bytes]:
    """`command` on `core`, in a session of its own, so that its whole group can be ended.

    `checkout`: whose packages it imports, if it is a module of ours.
    """
    variables = {name: value for name, value in child_environment({}).items() if not name.startswith(_PRIVATE)}
    process = subprocess.Popen(
        [*parent_death.command_prefix(), *command],
        stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else log,
        stderr=log,
        cwd=checkout,
        env={**variables, **(environment or {})},
        start_new_session=True,
    )
    os.sched_setaffinity(process.pid, {core})  # long before it can start a child of its own
    return process


def answers(url: str, timeout_s: float) -> bool:
    """Whether `url` answers with a status below 400."""
    try:
        with urlopen(url, timeout=timeout_s):
            return True
    except HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path, patience_s: float = START_S) -> None:
    """Until `url` answers 200. Raises RuntimeError, with the end of its log, when it ends or takes too long."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until and process.poll() is None:
        if answers(url, 5):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{url} did not come up:\n{log.read_text(errors='replace')[-3000:]}")


def end(process: subprocess.Popen[bytes], patience_s: float = 20.0) -> None:
    """Ask it to leave; after `patience_s` kill it and its group."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def receive(process: subprocess.Popen[bytes]) -> Any:
    """The next line of its output, as JSON. Raises RuntimeError when it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait(5)}")
    return orjson.loads(line)


def send(process: subprocess.Popen[bytes], value: Mapping[str, Any]) -> None:
    """A line of JSON to its input."""
    assert process.stdin is not None
    process.stdin.write(orjson.dumps(value) + b"\n")
    process.stdin.flush()
