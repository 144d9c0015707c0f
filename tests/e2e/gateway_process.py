"""The real gateway: `thriftgate serve` in processes of its own, steered from a test."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import orjson
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.settings.files import ConfigError
from loadtests.ports import free_port
from tests.support.prepared import PreparedProcess, start

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 45
"""For a start, an end or a command, on a machine that is busy."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gateway.cli.main", *arguments]


_ONE_AT_A_TIME = threading.Lock()
"""A command in this process has the standard streams and the environment to itself."""


def run_in_process(
    arguments: list[str], environment: dict[str, str], stdin: str | None
) -> subprocess.CompletedProcess[str]:
    """As `command` in a process of its own, without the half second that its imports take. On a thread, because some
    commands run an event loop."""
    results: list[Result] = []

    def invoke() -> None:
        results.append(CliRunner(env=environment).invoke(cli, arguments, input=stdin, prog_name="thriftgate"))

    with _ONE_AT_A_TIME:
        thread = threading.Thread(target=invoke)
        thread.start()
        thread.join()
    (result,) = results
    code, errors = result.exit_code, result.stderr
    if isinstance(result.exception, ConfigError):
        code, errors = 2, f"{errors}{result.exception}\n"
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        errors += "".join(traceback.format_exception(result.exception))
    return subprocess.CompletedProcess(arguments, code, result.stdout, errors)


@dataclass
class GatewayProcess:
    """One data directory and whatever gateway runs on it."""

    home: Path
    config: str
    policies: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    workers: int = 1
    under: tuple[str, ...] = ()
    """Words before the command, such as a tracer's."""
    process: PreparedProcess | subprocess.Popen[bytes] | None = None
    _keys: dict[tuple[str, ...], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.home / "gateway.yaml").write_text(self.config)
        for team, text in self.policies.items():
            self.write_policy(team, text)

    @property
    def folder(self) -> Path:
        return self.home / "policies"

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    @property
    def facts(self) -> dict[str, Any]:
        """runtime.json: what runs where."""
        found: dict[str, Any] = orjson.loads((self.home / "data" / "runtime.json").read_bytes())
        return found

    def write_policy(self, team: str, text: str) -> None:
        (self.folder / f"{team}.yaml").write_text(f"team: {team}\n{text}")

    def _common(self) -> list[str]:
        return [
            "--config", str(self.home / "gateway.yaml"), "--data-dir", str(self.home / "data"),
            "--policies", str(self.folder),
        ]  # fmt: skip

    def start(self) -> None:
        """Start and wait until it is ready, or has no backend. Raises RuntimeError with its log otherwise."""
        with (self.home / "log").open("ab") as log:
            self.process = self._started(log)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            try:
                with urlopen(f"{self.base}/health/ready", timeout=1):
                    return
            except HTTPError as error:
                with error:
                    said = error.read()
                if b"no backend is configured" in said:  # as ready as it will be
                    return
                time.sleep(0.05)
            except (OSError, URLError):
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"the gateway did not become ready:\n{self.log[-4000:]}")

    def _started(self, log: IO[bytes]) -> PreparedProcess | subprocess.Popen[bytes]:
        words = ["serve", *self._common(), "--port", str(self.port), "--workers", str(self.workers)]
        environment = {**os.environ, **self.environment}
        if not self.under and not any(name.startswith("PYTHON") for name in self.environment):
            return start(words, environment, log.fileno())
        return subprocess.Popen(
            [*self.under, *command(*words)],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            cwd=REPOSITORY, env=environment, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """As an operator stops it."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """`kill -9` of everything that was started: supervisor, workers, state."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=10)

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A sub-command on the same configuration; `serve`, which takes over its process, in one of its own."""
        words = [*arguments, *self._common()]
        if arguments[0] != "serve":
            done = run_in_process(words, self.environment, stdin)
        else:
            done = subprocess.run(
                command(*words),
                capture_output=True, text=True, input=stdin, cwd=REPOSITORY,
                env={**os.environ, **self.environment}, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"{arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def json(self, *arguments: str) -> Any:
        return orjson.loads(self.run(*arguments, "--json").stdout)

    async def key(self, team: str, *more: str) -> str:
        """A key that the running gateway already knows; the same one when asked for the same again."""
        if (team, *more) not in self._keys:
            made = await asyncio.to_thread(self.json, "keys", "create", "--team", team, *more)
            self._keys[team, *more] = str(made["key"])
        return self._keys[team, *more]

    def usage(self, team: str, by: str = "model") -> dict[str, Any]:
        found: dict[str, Any] = self.json("usage", "--team", team, "--by", by)
        return found
