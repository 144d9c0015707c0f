"""kill -9, at any instant, of workers and of the writer: what was said to be closed is in the ledger, once."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gateway.ledger.journal.append import append
from gateway.ledger.store import anchor
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.verify import verify
from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from tests.ledger.samples import COST, ledger_rows, row

ROOT = Path(__file__).parents[2]


async def start(*arguments: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.ledger.victims", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()  # it is under way
    return process


async def kill(process: asyncio.subprocess.Process) -> list[str]:
    """What it said until it died."""
    process.kill()
    assert process.stdout is not None
    said = await process.stdout.read()
    await process.wait()
    return said.decode().split("\n")[:-1]


async def test_workers_and_writers_may_be_killed_at_any_instant(database: Database, tmp_path: Path) -> None:
    directory, url, chance = tmp_path / "journal", str(database.engine.url), random.Random(7)
    workers = [await start("worker", str(directory)) for _ in range(2)]
    for _ in range(3):
        writer = await start("writer", str(directory), url)
        await asyncio.sleep(chance.uniform(0.05, 0.3))
        await kill(writer)
    said: Counter[str] = Counter()
    for process in workers:
        said.update(line for line in await kill(process) if line.startswith("closed"))
    left = await asyncio.to_thread(drain, directory, database)

    rows = {row["id"]: row for row in await asyncio.to_thread(ledger_rows, database)}
    closed = {line.removeprefix("closed ") for line in said}
    assert len(closed) > 100
    assert closed <= rows.keys()
    assert {rows[id]["outcome"] for id in closed} == {"ok"}
    assert {rows[id]["cost_pico"] for id in closed} == {COST}
    # Of each worker at most the two attempts under way are unsaid; what was open is interrupted, not lost.
    assert len(rows) - len(closed) <= 2 * len(workers)
    assert await asyncio.to_thread(checked, directory, database) == len(rows)
    assert left == []


STEPS = [
    ("gateway.ledger.store.chain_heads:genesis", 0),
    ("gateway.ledger.store.anchor:write", 0),
    ("gateway.ledger.store.chain_heads:linked", 0),
    ("gateway.ledger.store.writer:insert_once", 0),
    ("gateway.ledger.store.writer:_save_places", 0),
    ("gateway.ledger.store.chain_heads:ChainHeads.committed", 0),
    ("gateway.ledger.store.chain_heads:ChainHeads.anchor", 0),
    ("gateway.ledger.store.chain_heads:ChainHeads._sync", 0),
    ("gateway.ledger.store.anchor:write", 1),
    ("os:fsync", 2),
    ("os:fsync", 3),
    ("pathlib:Path.replace", 1),
    ("gateway.ledger.store.writer:Writer._release", 0),
]
"""Where a first drain is killed: before its chain is begun, in its transaction, between that and the anchor, after."""


@pytest.fixture(scope="module")
def dying_writers() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.ledger.victims", "dying"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield process


def killed_by(dying_writers: subprocess.Popen[bytes], *arguments: str | int) -> int:
    """The signal that ended a writer with these `arguments`."""
    assert dying_writers.stdin is not None
    assert dying_writers.stdout is not None
    dying_writers.stdin.write(orjson.dumps(arguments) + b"\n")
    dying_writers.stdin.flush()
    return int(dying_writers.stdout.readline())


@pytest.mark.parametrize(("target", "calls"), STEPS)
async def test_the_chain_holds_wherever_its_writer_is_killed(
    any_database: Database, dying_writers: subprocess.Popen[bytes], tmp_path: Path, target: str, calls: int
) -> None:
    directory, url = tmp_path / "journal", any_database.engine.url.render_as_string(hide_password=False)
    await asyncio.to_thread(append, directory, [row(f"req_{number}") for number in range(5)], "test")
    ended = await asyncio.to_thread(killed_by, dying_writers, str(directory), url, target, calls)
    assert ended == signal.SIGKILL
    anchored = await asyncio.to_thread(checked, directory, any_database)
    assert anchored <= 5
    await asyncio.to_thread(drain, directory, any_database)
    assert await asyncio.to_thread(checked, directory, any_database) == 5
    assert len(await asyncio.to_thread(ledger_rows, any_database)) == 5


def checked(directory: Path, database: Database) -> int:
    """How far the anchor is, in a ledger that verifies and has but one chain with entries."""
    anchors = anchor.read(anchor.beside(directory))
    with snapshot(database) as connection:
        verdict = verify(connection, anchors)
    assert verdict.findings == ()
    assert len([chain for chain in verdict.chains if chain.entries]) <= 1
    return max((head.seq for head in anchors.heads.values()), default=0) if anchors else 0


def drain(directory: Path, database: Database) -> list[str]:
    """Drain to the end in this process; names of the segments left."""
    writer = Writer(directory, database)
    asyncio.run(writer.drain_once())
    asyncio.run(writer.aclose())
    return [path.name for path in directory.glob("*.journal")]
