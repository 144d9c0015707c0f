"""The degradation matrix, live: every part of the gateway is killed, frozen, slowed and filled under load, then mended.

`python -m loadtests.matrix [--cells state,disk:full]` starts the real `thriftgate serve`, a Valkey, PostgreSQL and two
scripted backends for every cell, compares what clients, health, metrics and ledger say with what `matrix_cells`
declares, prints a table, and ends with status 1 unless all of it is so.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn

import orjson
import uvloop

from loadtests.matrix_cells import NOT_POSSIBLE, Cell, chosen
from loadtests.matrix_database import Database
from loadtests.matrix_run import NotHere, Result, Stage
from loadtests.matrix_table import lines


def matrix(cells: Sequence[Cell], workers: int, keep: Path | None, say: bool = True) -> list[Result]:
    """One after the other. Everything that is started is ended."""
    found: list[Result] = []
    database = Database()
    try:
        with tempfile.TemporaryDirectory(prefix="tg-matrix-", ignore_cleanup_errors=True) as made:
            for cell in cells:
                home = (keep or Path(made)) / cell.name.replace(":", "-")
                found.append(_one(cell, home, database, workers))
                if say:
                    print(found[-1].line, file=sys.stderr, flush=True)
    finally:
        database.stop()
    return found


def _one(cell: Cell, home: Path, database: Database, workers: int) -> Result:
    stage = Stage(cell, home, database, workers)
    try:
        stage.open()
        result = uvloop.run(until_told_to_end(stage.play()))
    except NotHere as error:
        return Result(cell, not_run=str(error))
    except Exception as error:
        logging.exception("cell %s", cell.name)
        return Result(cell, complaints=[f"{type(error).__name__}: {error}"])
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ending the cell's processes takes seconds
        stage.close()
        signal.signal(signal.SIGTERM, _end)
    return result or _end()


async def until_told_to_end(play: Coroutine[Any, Any, Result]) -> Result | None:
    """The result of a cell; None after SIGTERM. An exception of a signal handler would count as a failed cell."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await play
    except asyncio.CancelledError:
        return None


def _end(*_: object) -> NoReturn:
    """End, after everything that was started."""
    sys.exit(128 + signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="matrix", description=__doc__.split("\n")[0])
    options.add_argument("--cells", default="", help="parts, faults or part:fault, with commas between; default: all")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--json", type=Path, help="write everything that was seen there")
    options.add_argument("--keep", type=Path, help="leave configurations, logs and data in this folder")
    given = options.parse_args(argv)
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGTERM, _end)
    try:
        cells = chosen(given.cells)
    except ValueError as error:
        options.error(str(error))
    results = matrix(cells, given.workers, given.keep.absolute() if given.keep else None)
    print("\n".join([*lines(results), "", *NOT_POSSIBLE]))
    if given.json:
        given.json.write_bytes(orjson.dumps([result.as_json() for result in results], option=orjson.OPT_INDENT_2))
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
