"""A soak: mixed load for many minutes, and proof that nothing grows and every answer is paid for once.

`python -m loadtests.soak --minutes 30` starts the real `thriftgate serve --workers 2` with embedded state and SQLite,
asks it `--rate` times a second for plain answers, streams, cache hits, hang-ups, fallbacks, failures and refusals,
changes a policy now and then, and ends with status 1 unless memory, descriptors, threads and tasks stay and the
accounts agree.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop
from sqlalchemy import select

from gateway.runtime.tasks import Tasks
from gateway.state.sql.tables import ledger
from loadtests.matrix_cells import MEANING
from loadtests.matrix_gateway import MatrixGateway
from loadtests.matrix_judge import Row
from loadtests.matrix_servers import Provider
from loadtests.soak_judge import Line, account, lines, missing
from loadtests.soak_mix import TEAMS, Mix, Tally
from loadtests.soak_sample import Sampled, sample_on

DRAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Seen:
    """All of a soak."""

    tally: Tally
    samples: list[Sampled]
    seconds: float
    rows: int
    calls: dict[str, int]
    """That each provider saw."""
    figures: list[Line]
    complaints: list[str]
    log: str
    """The gateway's last words, when there are complaints."""

    def as_json(self) -> dict[str, Any]:
        """As JSON, without the answers one by one."""
        tally = self.tally
        clients = {"asked": tally.asked, "hits": tally.hits, "degraded": tally.degraded, "longest_s": tally.longest_s}
        return {
            "clients": clients | {"answers": len(tally.answers), "odd": tally.odd},
            "seconds": self.seconds,
            "ledger_rows": self.rows,
            "provider_calls": self.calls,
            "figures": [asdict(line) for line in self.figures],
            "samples": [asdict(one) for one in self.samples],
            "complaints": self.complaints,
            "log": self.log,
        }


def soak(minutes: float, rate: float, every_s: float, seed: int, workers: int, *, semantic: bool = False) -> Seen:
    """Raises RuntimeError when the gateway does not start."""
    with ExitStack() as exits:
        home = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="tg-soak-", ignore_cleanup_errors=True)))
        providers = {name: Provider(home / f"{name}.jsonl", drip_ms=1.0) for name in ("first", "second")}
        for provider in providers.values():
            exits.callback(provider.stop)
        teams = {**TEAMS, "cached": MEANING} if semantic else TEAMS
        gateway = MatrixGateway(home, (providers["first"].url, providers["second"].url), teams, workers=workers)
        gateway.prepare()
        gateway.start()
        exits.callback(gateway.abandon)
        began = time.monotonic()
        tally, samples = uvloop.run(_load(gateway, Mix(gateway, rate, seed), minutes * 60, every_s))
        seconds = time.monotonic() - began
        rows = _drained(gateway, tally)
        left = gateway.stop()
        time.sleep(0.5)  # the providers write down what was hung up on last
        sent = {name: _calls(provider.record) for name, provider in providers.items()}
        figures = lines(samples, tally.asked.total())
        complaints = [*missing(samples), *account(tally, rows, sent)]
        complaints += [f"{count} × {what}" for what, count in tally.odd.items()]
        complaints += [f"{line.what} grew by {line.growth:.1f}" for line in figures if not line.ok]
        complaints += ["the gateway did not stop in order"] if left else []
        complaints += ["an error inside the gateway: see its log"] if "Traceback" in gateway.log else []
        log = gateway.log[-20_000:] if complaints else ""
    return Seen(tally, samples, seconds, len(rows), sent, figures, complaints, log)


async def _load(gateway: MatrixGateway, mix: Mix, seconds: float, every_s: float) -> tuple[Tally, list[Sampled]]:
    samples: list[Sampled] = []
    watchers = Tasks()
    watchers.spawn(sample_on(gateway, every_s, samples), "samples")
    await mix.run(seconds)
    await watchers.aclose()
    await asyncio.sleep(1.0)
    return mix.tally, samples


def _drained(gateway: MatrixGateway, tally: Tally) -> list[Row]:
    """The ledger's rows once every answer has one, or what there is after a while."""
    until = time.monotonic() + DRAIN_S
    while True:
        rows = _rows(gateway)
        if tally.answers.keys() <= {row.request_id for row in rows} or time.monotonic() > until:
            return rows
        time.sleep(1.0)


def _rows(gateway: MatrixGateway) -> list[Row]:
    there = gateway.ledger()
    try:
        with there.read() as connection:
            return [Row(*row) for row in connection.execute(select(*(ledger.c[name] for name in Row._fields)))]
    finally:
        there.close()


def _calls(record: Path) -> int:
    with record.open("rb") as lines_of_it:
        return sum(row["path"] == "/v1/chat/completions" for row in map(orjson.loads, lines_of_it))


def table(figures: Sequence[Line]) -> list[str]:
    rows = [("what", "first", "last", "growth", "bound", "")]
    for line in figures:
        bound = "" if line.bound is None else f"{line.bound:.0f}"
        rows.append(
            (line.what, f"{line.first:.1f}", f"{line.last:.1f}", f"{line.growth:+.1f}", bound, "" if line.ok else "NOT")
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="soak", description=__doc__.split("\n")[0])
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--rate", type=float, default=100.0, help="requests a second")
    options.add_argument("--every", type=float, default=5.0, help="seconds between samples")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--semantic", action="store_true", help="the semantic cache too, with its embedding model")
    options.add_argument("--json", type=Path, help="write everything that was seen there")
    options.add_argument("--plot", type=Path, help="draw the curves there (PNG); needs the extra loadtest")
    given = options.parse_args(argv)
    logging.basicConfig(level=logging.WARNING)
    seen = soak(given.minutes, given.rate, given.every, given.seed, given.workers, semantic=given.semantic)
    if given.json:
        given.json.write_bytes(orjson.dumps(seen.as_json(), option=orjson.OPT_INDENT_2))
    if given.plot:
        from loadtests.soak_plot import draw

        draw(seen.as_json()["samples"], given.plot)
    tally = seen.tally
    asked = ", ".join(f"{count} {kind}" for kind, count in tally.asked.most_common())
    print("\n".join([*table(seen.figures), "", f"{tally.asked.total()} asked: {asked}"]))
    longest = f"longest request {tally.longest_s:.1f} s, {tally.degraded} degraded"
    print(f"{seen.seconds:.0f} s, {seen.rows} ledger rows, {longest}; seed {given.seed}")
    print("\n".join(f"NOT: {what}" for what in seen.complaints) or "nothing grows, and all accounts agree")
    return 1 if seen.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
