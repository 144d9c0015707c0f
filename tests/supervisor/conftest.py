"""A supervisor in a process of its own, and what one asks it from outside."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson
import pytest

from gateway.settings.environment import child_environment
from tests.support.prepared import PreparedProcess, start
from tests.support.waiting import wait_until

SCRIPT = Path(__file__).with_name("run.py")
ROOT = SCRIPT.parents[2]


class Gateway:
    """One `run.py`; started again on the same directory by `start`."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.process: PreparedProcess | subprocess.Popen[bytes] | None = None
        self._lines: IO[bytes] = io.BytesIO()
        self._said = data / "said"

    def start(self, port: int = 0, **options: object) -> Gateway:
        words = [f"{name}={value}" for name, value in options.items()]
        environment = child_environment({"PYTHONPATH": str(ROOT)})
        arguments = [str(self.data), str(port), *words]
        self._lines.close()
        reader, writer = os.pipe()
        self._lines = os.fdopen(reader, "rb")
        with open(writer, "wb") as lines, self._said.open("wb") as said:
            if "real" in options:  # whose workers are forked by a process that has imported nothing else
                self.process = subprocess.Popen(
                    [sys.executable, str(SCRIPT), *arguments],
                    stdout=lines, stderr=said, cwd=ROOT / "tests", env=environment,
                )  # fmt: skip
            else:
                self.process = start(
                    arguments, environment, lines.fileno(),
                    errors=said.fileno(), folder=ROOT / "tests", script=SCRIPT,
                )  # fmt: skip
        return self

    def ready(self) -> Gateway:
        """Wait until it has announced that it listens."""
        assert b"listening on" in self.next_line(), self.end()
        return self

    def next_line(self) -> bytes:
        """The next line that it announces."""
        return self._lines.readline()

    def facts(self) -> Any:
        return orjson.loads((self.data / "runtime.json").read_bytes())

    def get(self, path: str = "/") -> bytes:
        with urlopen(self.facts()["url"] + path, timeout=10) as reply:
            return bytes(reply.read())

    def worker(self) -> Any:
        return orjson.loads(self.get())

    def all_ready(self, count: int) -> list[int]:
        """The pids of so many workers, once each of them has answered."""
        self.ready()
        seen: set[int] = set()

        def ask() -> bool:
            seen.add(self.worker()["pid"])
            return len(seen) == count

        until(ask)
        return sorted(seen)

    def send(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Signal it; its exit status and what it said to standard error."""
        self.send(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait until it, and everything that writes to its streams, has ended; what `end` returns."""
        assert self.process
        code = self.process.wait(timeout=40)
        with self._lines as lines:
            lines.read()
        return code, self._said.read_text()


def until(condition: Callable[[], object]) -> None:
    """While nothing is there yet, or it answers with an error, it is not so yet."""

    def true() -> object:
        try:
            return condition()
        except HTTPError as answer:
            with answer:
                return False

    wait_until(true, not_yet=(OSError, ValueError))


def gone(*pids: int) -> bool:
    """None of them runs; a zombie that nobody has buried yet does not."""
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            return False
    return True


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    data = Path(tempfile.mkdtemp(prefix="tg-"))
    gateway = Gateway(data)
    yield gateway
    if gateway.process and gateway.process.poll() is None:
        gateway.process.kill()
        gateway.ended()
    shutil.rmtree(data, ignore_errors=True)
