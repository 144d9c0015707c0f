"""Exactly once under chaos: real processes are killed and frozen under load, then three accounts are compared.

`python -m loadtests.chaos` starts `thriftgate serve`, a provider, PostgreSQL and clients, strikes at random times, and
ends with status 1 unless clients, provider and ledger agree on every attempt. The seed decides requests and blows.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import uvloop
from sqlalchemy import select

from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from loadtests.chaos_clients import Clients, Received
from loadtests.chaos_database import LedgerDatabase, Postgres, Sqlite
from loadtests.chaos_gateway import PRICES, TEAM, ChaosGateway
from loadtests.chaos_mix import Ask, mixture
from loadtests.chaos_provider import Call
from loadtests.chaos_reconcile import LedgerRow, Report, reconcile
from loadtests.chaos_schedule import Blow, schedule
from loadtests.chaos_table import summary, table

REPOSITORY = Path(__file__).parents[1]
IN_FLIGHT = 32
"""No blow falls before so many requests are under way."""
QUICK: dict[str, Any] = {"requests": 600, "kills": 1, "freezes": 0, "database": "sqlite"}
PATIENCE_S = 900.0
"""Longest wait for the moment of a blow."""


@dataclass(frozen=True, slots=True)
class Options:
    requests: int = 20_000
    concurrency: int = 64
    workers: int = 2
    kills: int = 5
    freezes: int = 2
    """Of each victim."""
    database: str = "postgres"
    seed: int = 1
    keep: Path | None = None


@dataclass(slots=True)
class Run:
    """What happened."""

    options: Options
    blows: list[tuple[Blow, int]] = field(default_factory=list)
    """And how many requests were under way."""
    received: list[Received] = field(default_factory=list)
    turned_away: int = 0
    seconds: float = 0.0
    stop_s: float = 0.0
    report: Report = field(default_factory=Report)


def chaos(options: Options) -> Run:
    """Start everything, strike, stop, reconcile. Raises RuntimeError when the gateway does not come back."""
    with ExitStack() as exits:
        home = options.keep or Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="tg-chaos-")))
        provider = subprocess.Popen(
            [sys.executable, "-m", "loadtests.chaos_provider"], cwd=REPOSITORY, stdout=subprocess.PIPE
        )
        exits.callback(provider.wait)
        exits.callback(provider.terminate)
        assert provider.stdout
        port = int(provider.stdout.readline())
        database = _database(options, home)
        exits.callback(database.stop)
        database.start()
        gateway = ChaosGateway(home, database, port, options.workers)
        exits.callback(gateway.abandon)
        gateway.start()
        run = uvloop.run(_tear(options, gateway))
        run.stop_s = gateway.stop()
        gateway.run("ledger", "drain")
        run.report = reconcile(run.received, _calls(port), _rows(database.url), PRICES)
        _look_for_left_overs(run, gateway)
        return run


def _database(options: Options, home: Path) -> LedgerDatabase:
    if options.database == "postgres":
        return Postgres()
    home.mkdir(parents=True, exist_ok=True)
    return Sqlite(home / "ledger.sqlite")


async def _tear(options: Options, gateway: ChaosGateway) -> Run:
    """Clients at work, blows among them; returns when both are through."""
    run, tasks = Run(options), Tasks()
    key = orjson.loads(await asyncio.to_thread(gateway.run, "keys", "create", "--team", TEAM, "--json"))["key"]
    await asyncio.sleep(1.0)  # until every worker knows the key
    blows = schedule(options.seed, options.requests, options.kills, options.freezes)
    striking = asyncio.Event()
    clients = Clients(gateway.port, key, _asks(options, striking), options.concurrency)
    began = time.monotonic()
    working = tasks.spawn(clients.run(), "clients")
    try:
        for blow in blows:
            await _opportunity(clients, blow)
            run.blows.append((blow, clients.in_flight))
            print(f"{time.monotonic() - began:6.1f} s  {blow.deed} {blow.victim}", file=sys.stderr, flush=True)
            if not await gateway.strike(blow):
                run.blows.pop()
        striking.set()
        await working
    finally:
        await tasks.aclose()
    run.received, run.turned_away, run.seconds = clients.received, clients.turned_away, time.monotonic() - began
    return run


def _asks(options: Options, struck: asyncio.Event) -> Iterator[Ask]:
    """As many as were asked for, and more while blows are still to come."""
    for ask in mixture(options.seed):
        if ask.number >= options.requests and struck.is_set():
            return
        yield ask


async def _opportunity(clients: Clients, blow: Blow) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(clients.received) < blow.after or clients.in_flight < IN_FLIGHT:
            await asyncio.sleep(0.002)


def _calls(port: int) -> list[Call]:
    with urlopen(f"http://127.0.0.1:{port}/calls", timeout=60) as answer:
        return [Call(**call) for call in orjson.loads(answer.read())]


def _rows(url: str) -> list[LedgerRow]:
    database = Database(url)
    try:
        columns = [ledger.c[name] for name in LedgerRow.__dataclass_fields__]
        with database.read() as connection:
            return [LedgerRow(*row) for row in connection.execute(select(*columns))]
    finally:
        database.close()


def _look_for_left_overs(run: Run, gateway: ChaosGateway) -> None:
    for path in gateway.journal.iterdir():
        if path.name != "writer.lock":
            run.report.blame("left in the journal after the last drain", path.name)
    expected = 4 * (run.options.kills + run.options.freezes)
    if len(run.blows) < expected:
        run.report.blame("a blow missed its victim", expected - len(run.blows))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Options()
    parser.add_argument("--requests", type=int, help=f"at least; default {usual.requests}")
    parser.add_argument("--concurrency", type=int, help=f"default {usual.concurrency}")
    parser.add_argument("--workers", type=int, help=f"default {usual.workers}")
    parser.add_argument("--kills", type=int, help=f"of each victim; default {usual.kills}")
    parser.add_argument("--freezes", type=int, help=f"of each victim; default {usual.freezes}")
    parser.add_argument("--database", choices=("postgres", "sqlite"), help=f"default {usual.database}")
    parser.add_argument("--seed", type=int, help="default: another each time, printed")
    parser.add_argument("--quick", action="store_true", help="600 requests, a kill each, SQLite")
    parser.add_argument("--keep", type=Path, help="a new folder for data directory and log, which are kept")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    given = {name: value for name, value in vars(parser.parse_args(words)).items() if value is not None}
    as_json, quick = given.pop("json"), given.pop("quick")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    given = {"seed": random.randrange(10**6)} | (QUICK if quick else {}) | given
    options = Options(**given)
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    run = chaos(options)
    if as_json:
        print(orjson.dumps(summary(run), option=orjson.OPT_INDENT_2, default=str).decode())
    else:
        print(table(run))
    return 1 if run.report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
