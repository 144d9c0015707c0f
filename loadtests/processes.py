"""Processes that a measurement starts: each on its core, ended by us, and by the kernel if we are killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from gateway.settings.environment import child_environment
from gateway.supervisor import tether

REPOSITORY = Path(__file__).parents[1]
_PRIVATE = ("OTEL_", "THRIFTGATE_")
"""Variables of the operator's own gateway must not steer the measured one."""


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
) -> subprocess.Popen[bytes]:
    """`command` on `core`, in a session of its own, so that its whole group can be ended."""
    variables = {name: value for name, value in child_environment({}).items() if not name.startswith(_PRIVATE)}
    process = subprocess.Popen(
        [*tether.prefix(), *command],
        stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else log,
        stderr=log,
        cwd=REPOSITORY,
        env={**variables, **(environment or {})},
        start_new_session=True,
    )
    os.sched_setaffinity(process.pid, {core})  # long before it can start a child of its own
    return process


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


def told(process: subprocess.Popen[bytes]) -> Any:
    """The next line of its output, as JSON. Raises RuntimeError when it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait(5)}")
    return orjson.loads(line)


def tell(process: subprocess.Popen[bytes], value: Mapping[str, Any]) -> None:
    """A line of JSON to its input."""
    assert process.stdin is not None
    process.stdin.write(orjson.dumps(value) + b"\n")
    process.stdin.flush()
