"""One cell: its stage is set, the load begins, the part is struck and mended, and all accounts are compared."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson
from sqlalchemy import select

from gateway.state.sql.tables import ledger
from loadtests.matrix_cells import MEANING, TEAMS, TIGHT_USD, Cell
from loadtests.matrix_database import Database
from loadtests.matrix_disk import Ext4
from loadtests.matrix_embedder import Embedder
from loadtests.matrix_gateway import DEADLINE_S, MatrixGateway
from loadtests.matrix_judge import Phases, Row, complaints, longest_s, money_complaints, recovery_s, reply_of, usual
from loadtests.matrix_load import Load, Look, Sample
from loadtests.matrix_servers import Provider, StateServer

BEFORE_S = 5.0
QUIET_S = 3.0
"""Everything is as before when it has been so for this long."""
WARM_S = 40.0
DRAIN_S = 30.0


class NotHere(Exception):
    """This machine does not let the fault be made; the message says why."""


class Part(Protocol):
    def strike(self, fault: str) -> None: ...

    def mend(self, fault: str) -> None: ...


class Both:
    """Every backend there is."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts

    def strike(self, fault: str) -> None:
        for part in self._parts:
            part.strike(fault)

    def mend(self, fault: str) -> None:
        for part in self._parts:
            part.mend(fault)


@dataclass
class Result:
    """What was seen. `not_run` is never a pass."""

    cell: Cell
    complaints: list[str] = field(default_factory=list)
    not_run: str = ""
    means: str = ""
    phases: Phases | None = None
    samples: list[Sample] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    rows: int = 0

    @property
    def ok(self) -> bool:
        return not self.complaints and not self.not_run

    @property
    def during(self) -> list[Sample]:
        return [s for s in self.samples if self.phases and self.phases.struck <= s.at < self.phases.mended]

    @property
    def line(self) -> str:
        what = "ok" if self.ok else f"not run: {self.not_run}" if self.not_run else f"NOT: {'; '.join(self.complaints)}"
        return f"{self.cell.name}: {what}"

    def as_json(self) -> dict[str, Any]:
        """As JSON: the verdict, and of what was seen what a reader may want to count again."""
        found: dict[str, Any] = {"part": self.cell.part, "fault": self.cell.fault, "means": self.means, "ok": self.ok}
        found |= {"complaints": self.complaints, "not_run": self.not_run, "ledger_rows": self.rows}
        if self.phases:
            found |= {"phases": asdict(self.phases), "requests": len(self.samples)}
            found["recovery_s"] = round(recovery_s(self.cell.expect, self.phases, self.samples), 3)
            found["longest_s"] = round(longest_s(self.samples), 3)
            for name, samples in (("during", self.during), ("all", self.samples)):
                seen = Counter((s.team, reply_of(s), s.degraded, s.cache, s.backend) for s in samples)
                found[name] = [[*key, count] for key, count in sorted(seen.items())]
            found["looks"] = [asdict(look) for look in self.looks[:: max(1, len(self.looks) // 20)]]
        return found


class Stage:
    """Everything that one cell needs, opened and closed around it."""

    def __init__(self, cell: Cell, home: Path, database: Database, workers: int) -> None:
        self.cell, self.database = cell, database
        self._home, self._workers = home, workers
        self._exits = ExitStack()

    def open(self) -> None:
        """From the main thread: the kernel ends our children with the thread that started them. Raises NotHere."""
        cell, home, exits = self.cell, self._home, self._exits
        home.mkdir(parents=True)
        exits.callback(self.database.drop)
        self.state = StateServer()
        exits.callback(self.state.stop)
        self.backends = [Provider(home / f"{name}.jsonl") for name in ("first", "second")]
        for backend in self.backends:
            exits.callback(backend.stop)
        meant = {**TEAMS, "cached": MEANING} if cell.part == "embedder" else TEAMS
        self.embedder = Embedder(home / "embedder")
        self.gateway = MatrixGateway(
            home,
            (self.backends[0].url, self.backends[1].url),
            meant,
            state_url=self.state.url,
            database_url=self.database.fresh(),
            direct_database_url=self.database.direct,
            environment=self.embedder.environment if cell.part == "embedder" else {},
            workers=self._workers,
        )
        self.part = self._part()
        self.gateway.prepare()
        self.gateway.start()
        exits.callback(self.gateway.abandon)

    def _part(self) -> Part:
        match self.cell.part:
            case "state":
                return self.state
            case "database":
                return self.database
            case "backend":
                return self.backends[0]
            case "backends":
                return Both(*self.backends)
            case "embedder":
                self.embedder.renew = lambda: self.gateway.signal(signal.SIGUSR2)
                return self.embedder
        try:
            disk = Ext4(self.gateway.data)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotHere(f"no filesystem can be mounted from a loop device: {error}") from error
        self._exits.callback(disk.unmount)
        return disk

    def close(self) -> None:
        self._exits.close()

    async def play(self) -> Result:
        cell, fault = self.cell, self.cell.fault
        askers = {team: 1 if team == "tight" else 2 for team in TEAMS}
        means = cell.means or self.database.full_means
        async with Load(self.gateway, askers) as load:
            await self._warm(load)
            struck = load.now
            await asyncio.to_thread(self.part.strike, fault)
            await asyncio.sleep(cell.during_s)
            await asyncio.to_thread(self.part.mend, fault)
            mended = load.now
            await self._as_before(load, mended)
            ended = load.now
        noticed = struck + min(cell.noticed_s, cell.during_s * 0.75)
        phases, samples = Phases(struck, noticed, mended, ended), load.samples
        rows = await self._drained(samples)
        odd = complaints(cell.expect, phases, samples, load.looks, DEADLINE_S)
        odd += money_complaints(samples, rows, {"tight": TIGHT_USD}, self._sent())
        if await asyncio.to_thread(self.gateway.stop):
            odd.append("the gateway did not stop in order")
        if cell.expect.log and cell.expect.log not in self.gateway.log:
            odd.append(f"the log does not say: {cell.expect.log}")
        return Result(cell, odd, "", means, phases, samples, load.looks, len(rows))

    async def _warm(self, load: Load) -> None:
        """All workers have answered; where it matters, with their embedder."""
        await asyncio.sleep(BEFORE_S)
        until = load.now + WARM_S
        while self.cell.part == "embedder" and load.now < until:
            latest = [look.metrics.get('thriftgate_room{figure="semantic_ready",room="cache"}') for look in load.looks]
            if len(latest) > 10 and all(latest[-8:]):
                break
            await asyncio.sleep(0.5)

    async def _as_before(self, load: Load, mended: float) -> None:
        expect = self.cell.expect
        until = mended + expect.recovery_s + QUIET_S + 2.0
        while load.now < until:
            await asyncio.sleep(0.25)
            recent = [s for s in load.samples if s.at >= max(mended, load.now - QUIET_S)]
            home = not expect.back_to or all(s.backend in ("", expect.back_to) for s in recent if s.answered)
            if load.now - mended > QUIET_S and recent and home and all(map(usual, recent)):
                return

    async def _drained(self, samples: list[Sample]) -> list[Row]:
        """The ledger's rows once every answer has one, or what there is after a while."""
        wanted = {sample.request_id for sample in samples if sample.answered}
        until = time.monotonic() + DRAIN_S
        while True:
            rows = await asyncio.to_thread(self._rows)
            if wanted <= {row.request_id for row in rows} or time.monotonic() > until:
                return rows
            await asyncio.sleep(0.5)

    def _rows(self) -> list[Row]:
        there = self.gateway.ledger()
        try:
            with there.read() as connection:
                found = connection.execute(select(*(ledger.c[name] for name in Row._fields)))
                return [Row(*row) for row in found]
        finally:
            there.close()

    def _sent(self) -> dict[str, tuple[int, int]]:
        """What backends say that they sent; one that was killed has forgotten some of it."""
        if self.cell.fault == "killed" and self.cell.part in ("backend", "backends"):
            return {}
        found = {}
        for name, backend in zip(("first", "second"), self.backends, strict=True):
            told = [orjson.loads(line) for line in backend.record.read_bytes().splitlines()]
            whole = [row for row in told if row["whole"] and row["status"] == 200]
            found[name] = len(whole), sum(row["output_tokens"] for row in whole)
        return found
