"""What is measured side by side: each target is started, pointed at the upstream, and ended with all below it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

import orjson

from loadtests import configs, nginx
from loadtests.ledgers import Ledger
from loadtests.ports import free_port
from loadtests.processes import REPOSITORY, START_S, Cores, end, python_of, start, wait_for

NotHere = nginx.NotHere


@dataclass(frozen=True, slots=True)
class Target:
    """Something on a port that answers OpenAI's chat dialect."""

    name: str
    port: int
    root: int | None = None
    """The process whose tree's CPU is counted; None: there is nothing but the upstream."""
    model: str = "loadtest"
    keys: dict[str, str] = field(default_factory=lambda: {"": "none"})
    """Purpose → key; the one named "" is for everything else."""
    ledger: Ledger | None = None
    data: Path | None = None
    printed: dict[str, str] = field(default_factory=dict)
    """Name of a file → its text: how it was run."""

    def facts(self) -> dict[str, Any]:
        """A gateway's runtime.json."""
        assert self.data is not None
        found: dict[str, Any] = orjson.loads((self.data / "runtime.json").read_bytes())
        return found


@contextmanager
def running_upstream(cores: Cores, module: str = "loadtests.upstream") -> Iterator[int]:
    """The port of the scripted provider that `module` runs."""
    process = start([sys.executable, "-m", module], cores.others, piped=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        end(process)


def upstream_counts(port: int) -> dict[str, int]:
    with urlopen(f"http://127.0.0.1:{port}/counts", timeout=30) as answer:
        found: dict[str, int] = orjson.loads(answer.read())
        return found


@contextmanager
def running_nginx(folder: Path, cores: Cores, upstream: int, *, install: bool | None) -> Iterator[Target]:
    """Raises NotHere."""
    program, port = nginx.find(install=install), free_port()
    folder.mkdir(parents=True)
    config = nginx.CONFIG.format(folder=folder, port=port, upstream=upstream)
    (folder / "nginx.conf").write_text(config)
    with logged(folder) as log:
        process = start([str(program), "-p", str(folder), "-c", str(folder / "nginx.conf")], cores.measured, log=log)
        try:
            wait_for(f"http://127.0.0.1:{port}/v1/models", process, folder / "log")
            printed = {"nginx.conf": config, "version": nginx.version(program)}
            yield Target("nginx", port, process.pid, printed=printed)
        finally:
            end(process)


@contextmanager
def running_gateway(
    folder: Path,
    cores: Cores,
    upstream: int,
    *,
    name: str = "thriftgate",
    everything: bool = False,
    checkout: Path = REPOSITORY,
    texts: Mapping[str, str] | None = None,
    workers: int | None = None,
) -> Iterator[Target]:
    """`thriftgate serve` of a checkout as an operator starts it, on a data directory of its own.

    `texts`: path below the folder → text of its files, of the teams `load` and `hits`; None: as `configs` has them.
    `workers`: so many workers on all cores; None: one worker on the measured core.
    """
    prepared = prepare(folder, upstream, everything=everything, checkout=checkout, texts=texts)
    with logged(folder) as log:
        process = serve(
            folder, cores, log, everything=everything, upstream=upstream, checkout=checkout, workers=workers
        )
        try:
            port = read_port(folder, process)
            wait_for(f"http://127.0.0.1:{port}/health/ready", process, folder / "log")
            ledger, data = Ledger(folder / "data" / "ledger.sqlite"), folder / "data"
            model = "auto" if everything else "loadtest"
            yield Target(name, port, process.pid, model, prepared.keys, ledger, data, prepared.printed)
        finally:
            end(process, 45)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A data directory with keys, and what lies in its files."""

    keys: dict[str, str]
    printed: dict[str, str]


def prepare(
    folder: Path,
    upstream: int,
    *,
    everything: bool = False,
    checkout: Path = REPOSITORY,
    texts: Mapping[str, str] | None = None,
) -> Prepared:
    """Writes gateway.yaml and policies, and makes a key each for misses, for answers that are stored, for /metrics."""
    (folder / "policies").mkdir(parents=True)
    texts = texts or configs.files(upstream, everything=everything)
    for path, text in texts.items():
        (folder / path).write_text(text)
    keys = {}
    purposes = [("", "load", "inference"), ("hits", "hits", "inference"), ("admin", "load", "admin")]
    if "policies/agents.yaml" in texts:
        purposes.append(("agents", "agents", "inference"))
    for purpose, team, scope in purposes:
        made = subprocess.run(
            [*_thriftgate(checkout, "keys", "create", folder), "--team", team, "--scope", scope, "--json"],
            capture_output=True, check=True, cwd=checkout, timeout=60,
        )  # fmt: skip
        keys[purpose] = str(orjson.loads(made.stdout)["key"])
    return Prepared(keys, dict(texts))


def serve(
    folder: Path,
    cores: Cores,
    log: IO[bytes],
    *,
    everything: bool = False,
    upstream: int = 0,
    checkout: Path = REPOSITORY,
    workers: int | None = None,
) -> subprocess.Popen[bytes]:
    sink = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{upstream}"} if everything else {}
    command = [*_thriftgate(checkout, "serve", folder), "--port", "0", "--workers", str(workers or 1)]
    process = start(command, cores.measured, log=log, environment=sink, checkout=checkout)
    if workers is not None:
        os.sched_setaffinity(process.pid, os.sched_getaffinity(0))
    return process


def _thriftgate(checkout: Path, verb: str, *rest: str | Path) -> list[str]:
    *more, folder = rest
    return [
        python_of(checkout), "-m", "gateway.cli.main", verb, *map(str, more), "--config", f"{folder}/gateway.yaml",
        "--data-dir", f"{folder}/data", "--policies", f"{folder}/policies",
    ]  # fmt: skip


def read_port(folder: Path, process: subprocess.Popen[bytes]) -> int:
    """Of this very process: an earlier one may have left its facts behind."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            facts = orjson.loads((folder / "data" / "runtime.json").read_bytes())
            if facts["pid"] == process.pid:
                return int(facts["port"])
            time.sleep(0.02)
        except (OSError, ValueError, KeyError):
            time.sleep(0.02)
    raise RuntimeError(f"the gateway did not start:\n{(folder / 'log').read_text(errors='replace')[-3000:]}")


@contextmanager
def logged(folder: Path) -> Iterator[IO[bytes]]:
    with (folder / "log").open("ab") as log:
        yield log
