"""Processes that a test kills: a worker that journals as fast as it can, and a writer that drains."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from gateway.ledger.store.writer import Writer
from gateway.state.sql.database import Database
from tests.ledger.samples import USAGE, begin, finish, journal, record


async def worker(directory: Path) -> None:
    """Says on standard output what it has opened and closed, each only once it is so."""
    books = journal(directory, mark_s=0.02, segment_bytes=20_000)
    await books.start()
    while True:
        entry = record()
        slow = begin(entry)
        books.open(slow, entry)
        print("opened", slow.id, flush=True)
        for _ in range(5):
            quick = begin(entry)
            books.open(quick, entry)
            print("opened", quick.id, flush=True)
            slow.chunks, slow.output_bytes = slow.chunks + 1, slow.output_bytes + 250
            books.close(finish(quick, USAGE), entry)
            print("closed", quick.id, flush=True)
        await asyncio.sleep(0.001)
        books.close(finish(slow, USAGE), entry)
        print("closed", slow.id, flush=True)


async def stream(directory: Path) -> None:
    """Passes on chunks of one attempt, without an end and without marks; says each once it is passed on."""
    books, entry = journal(directory), record(stream=True)
    await books.start()
    attempt = begin(entry)
    books.open(attempt, entry)
    for chunks in count(1):
        attempt.came(250, chunks)
        print(chunks, flush=True)


async def writer(directory: Path, url: str) -> None:
    database = Database(url)
    print("ready", flush=True)
    await Writer(directory, database, interval_s=0.005).run()


async def dying_writer(directory: Path, url: str, target: str, calls: int) -> None:
    """Drains, and is killed when `target` (module:name.name) is called for the time after `calls`."""
    module, _, path = target.partition(":")
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    real, left = getattr(owner, name), iter(range(calls))

    def killed(*args: Any, **options: Any) -> Any:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)

    setattr(owner, name, killed)
    database = Database(url)
    drainer = Writer(directory, database)
    await drainer.drain_once()
    await drainer.aclose()
    print("survived", flush=True)


def dying_writers() -> None:
    """One for each line of standard input, a JSON list of `dying_writer`'s arguments, forked with all imports done;
    the signal that ended it is printed."""
    for line in sys.stdin:
        directory, *rest = orjson.loads(line)
        if not (child := os.fork()):
            asyncio.run(dying_writer(Path(directory), *rest))
            os._exit(0)
        print(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    match what:
        case "worker":
            asyncio.run(worker(Path(rest[0])))
        case "stream":
            asyncio.run(stream(Path(rest[0])))
        case "dying":
            dying_writers()
        case _:
            asyncio.run(writer(Path(rest[0]), rest[1]))
