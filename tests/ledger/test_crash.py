"""kill -9, at any instant, of workers and of the writer: what was said to be closed is in the ledger, once."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

from gateway.ledger.writer import Writer
from gateway.state.sql import Database
from tests.ledger.samples import COST, ledger_rows

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
    assert left == []


def drain(directory: Path, database: Database) -> list[str]:
    """Drain to the end in this process; names of the segments left."""
    writer = Writer(directory, database)
    asyncio.run(writer.drain_once())
    asyncio.run(writer.aclose())
    return [path.name for path in directory.glob("*.journal")]
