"""`thriftgate serve` with a generated configuration, as the matrix and the soak put it under load."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gateway.policy.keys import create
from gateway.settings.environment import child_environment
from gateway.state.sql.database import Database
from loadtests.matrix_servers import end, launch
from loadtests.ports import free_port
from loadtests.processes import answers

MODEL, SHAKY, BROKEN = "pair", "shaky", "broken"
"""Served by two backends; the cheaper one always fails; the only one does."""
READY_S = 60.0
STOP_S = 30.0
DEADLINE_S = 6.0
"""Of every request."""

CONFIG = """\
backends:
  - {{name: first, kind: openai, base_url: "{first}", model: scripted, tier: large, window_tokens: 8000,
      price: {{input: 1, output: 4}}, first_byte_timeout: 2s, timeout: 5s}}
  - {{name: second, kind: openai, base_url: "{second}", model: scripted, tier: large, window_tokens: 8000,
      price: {{input: 2, output: 10}}, first_byte_timeout: 2s, timeout: 5s}}
  - {{name: flaky, kind: openai, base_url: "{first}", model: "[[fail status=503]]", tier: large, window_tokens: 8000,
      price: {{input: 0.5, output: 2}}}}
local_model: {{enabled: false}}
telemetry: {{access_log: false}}
trials: {{cache_checks: 0}}
requests: {{deadline: {deadline:g}s, drain: 10s, lag: 2s}}
state: {{redis_url: {state}}}
ledger: {{database_url: {database}}}
admin_api: true
"""
_RULE = f"""\
models:
  {MODEL}: {{candidates: [first, second], reference: second, escalate: false}}
  {SHAKY}: {{candidates: [flaky, second], reference: second, escalate: false}}
  {BROKEN}: {{candidates: [flaky], reference: flaky, escalate: false}}
"""


@dataclass
class MatrixGateway:
    """One data directory and the gateway on it."""

    home: Path
    backends: tuple[str, str]
    """Base URLs of `first` and `second`."""
    policies: Mapping[str, str]
    """Team → what its policy says besides the model."""
    state_url: str | None = None
    database_url: str | None = None
    direct_database_url: str = ""
    """For us, when the other leads through a proxy."""
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: int = 2
    port: int = field(default_factory=free_port)
    keys: dict[str, str] = field(default_factory=dict)
    """Team → secret; `admin` reads the metrics."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def facts(self) -> dict[str, Any]:
        """runtime.json: what runs where."""
        found: dict[str, Any] = orjson.loads((self.data / "runtime.json").read_bytes())
        return found

    def ledger(self) -> Database:
        """For reading; close it."""
        return Database(self.direct_database_url or f"sqlite:///{self.data}/ledger.sqlite")

    def prepare(self) -> None:
        """Write the files, make the keys."""
        first, second = self.backends
        self.data.mkdir(parents=True, exist_ok=True)
        (self.home / "policies").mkdir(exist_ok=True)
        state, database = self.state_url or "null", self.database_url or "null"
        text = CONFIG.format(first=first, second=second, deadline=DEADLINE_S, state=state, database=database)
        (self.home / "gateway.yaml").write_text(text)
        for team, rules in (*self.policies.items(), ("operators", "cache: {enabled: false}")):
            self.write_policy(team, rules)
        database_now = self.ledger()
        try:
            database_now.upgrade()
            for team in self.policies:
                self.keys[team], _ = create(database_now, team)
            self.keys["admin"], _ = create(database_now, "operators", scopes=("admin", "usage"))
        finally:
            database_now.close()

    def write_policy(self, team: str, rules: str) -> None:
        (self.home / "policies" / f"{team}.yaml").write_text(f"team: {team}\n{_RULE}{rules}\n")

    def start(self) -> None:
        """Returns once it is ready. Raises RuntimeError with its last words when it does not become so."""
        with (self.home / "log").open("ab") as log:
            self.process = launch(
                [
                    sys.executable, "-m", "gateway.cli.main", "serve", "--port", str(self.port),
                    "--workers", str(self.workers), "--config", str(self.home / "gateway.yaml"),
                    "--data-dir", str(self.data), "--policies", str(self.home / "policies"),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_environment(self.environment),
            )  # fmt: skip
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self.process.poll() is None:
            if answers(f"{self.base}/health/ready", 1):
                return
            time.sleep(0.05)
        self.abandon()
        raise RuntimeError(f"the gateway did not become ready:\n{self.log[-4000:]}")

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def stop(self) -> int:
        """As an operator stops it; its exit status, -9 when it would not go."""
        assert self.process
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.abandon()
        return self.process.wait()

    def abandon(self) -> None:
        """The kernel ends its children with it."""
        if self.process and self.process.poll() is None:
            end(self.process)
