"""What a chaos run tears at: `thriftgate serve`, its state server and its ledger database, and how each is struck."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from loadtests.chaos_database import LedgerDatabase
from loadtests.chaos_mix import MODEL
from loadtests.chaos_schedule import Blow
from loadtests.ports import free_port
from loadtests.processes import answers

TEAM = "chaos"
PRICES = {"first": (1, 4), "second": (2, 10), "third": (3, 15)}
"""Backend → USD per million tokens of input and of output."""
READY_S = 60.0
STOP_S = 60.0

CONFIG = """\
backends:
{backends}
local_model: {{enabled: false}}
telemetry: {{access_log: false}}
trials: {{cache_checks: 0}}
requests: {{drain: 10, lag: 2}}
ledger: {{database_url: "{database}"}}
"""
BACKEND = """\
  - {{name: {name}, kind: openai, base_url: "http://127.0.0.1:{port}/{name}/v1", model: scripted, tier: large,
      price: {{input: {price[0]}, output: {price[1]}}}, concurrent: 512}}"""
POLICY = f"""\
team: {TEAM}
models: {{{MODEL}: {{candidates: [{", ".join(PRICES)}], reference: third, escalate: false}}}}
cache: {{enabled: false}}
limits: {{requests_per_minute: 1000000, tokens_per_minute: 100000000}}
budget: {{limit_usd: 1000, window: day, on_state_loss: allow}}
"""


class ChaosGateway:
    def __init__(self, home: Path, database: LedgerDatabase, provider_port: int, workers: int) -> None:
        self.home, self.database, self._workers = home, database, workers
        self.port = free_port()
        (home / "policies").mkdir(parents=True)
        backends = "\n".join(BACKEND.format(name=name, port=provider_port, price=PRICES[name]) for name in PRICES)
        (home / "gateway.yaml").write_text(CONFIG.format(backends=backends, database=database.url))
        (home / "policies" / f"{TEAM}.yaml").write_text(POLICY)
        self._process: subprocess.Popen[bytes] | None = None
        self.frozen: set[int] = set()

    @property
    def journal(self) -> Path:
        return self.home / "data" / "journal"

    def facts(self) -> dict[str, Any]:
        """runtime.json: what runs where."""
        found: dict[str, Any] = orjson.loads((self.home / "data" / "runtime.json").read_bytes())
        return found

    def command(self, *words: str) -> list[str]:
        places = ["--config", "gateway.yaml", "--data-dir", "data", "--policies", "policies"]
        return [sys.executable, "-m", "gateway.cli.main", *words, *places]

    def run(self, *words: str) -> str:
        """A sub-command's standard output."""
        done = subprocess.run(self.command(*words), cwd=self.home, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def start(self) -> None:
        """Returns once it is ready. Raises RuntimeError when it does not become so."""
        with (self.home / "log").open("ab") as log:
            process = subprocess.Popen(
                self.command("serve", "--port", str(self.port), "--workers", str(self._workers)),
                cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.wait_for(process)

    def wait_for(self, process: subprocess.Popen[bytes]) -> None:
        """Returns when `process` is ready to serve. Raises RuntimeError if it does not become ready."""
        self._process = process
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if answers(f"http://127.0.0.1:{self.port}/health/ready", 1):
                return
            time.sleep(0.05)
            if self._process.poll() is not None:
                break
        raise RuntimeError("the gateway did not become ready; its log is in " + str(self.home / "log"))

    def stop(self) -> float:
        """As an operator stops it; seconds that it took. Raises TimeoutExpired."""
        assert self._process
        began = time.monotonic()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_S)
        return time.monotonic() - began

    def abandon(self) -> None:
        """End whatever still runs, whatever state it is in."""
        for pid in self.frozen:
            _signal(pid, signal.SIGCONT)
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    async def strike(self, blow: Blow) -> bool:
        """Do it, and put right what nobody else would; False when there was nothing to strike."""
        if blow.victim == "database":
            await asyncio.to_thread(self._strike_database, blow)
            return True
        if (pid := await self._victim(blow)) is None:
            return False
        if blow.seconds:
            self.frozen.add(pid)
            _signal(pid, signal.SIGSTOP)
            await asyncio.sleep(blow.seconds)
            self.frozen.discard(pid)
        if blow.deed == "freeze":
            _signal(pid, signal.SIGCONT)
            return True
        _signal(pid, signal.SIGKILL)
        if blow.victim == "supervisor":  # whoever started it starts it again, as systemd would
            assert self._process
            await asyncio.to_thread(self._process.wait)
            await asyncio.to_thread(self.start)
        return True

    async def _victim(self, blow: Blow) -> int | None:
        """Waits for one that is just being started again."""
        for _ in range(int(READY_S / 0.05)):
            if (pid := self._pid(blow)) is not None:
                return pid
            await asyncio.sleep(0.05)
        return None

    def _strike_database(self, blow: Blow) -> None:
        if blow.deed == "kill":
            self.database.kill(blow.seconds)
        else:
            self.database.freeze(blow.seconds)

    def _pid(self, blow: Blow) -> int | None:
        if blow.victim == "supervisor":
            assert self._process
            return self._process.pid if self._process.poll() is None else None
        facts = self.facts()
        pids = facts["workers"] if blow.victim == "worker" else [facts["valkey"]["pid"]]
        living = [pid for pid in pids if pid and _alive(pid)]
        return living[int(blow.chance * len(living))] if living else None


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
