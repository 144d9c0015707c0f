"""What a gateway takes beside requests: memory when idle, memory after many requests, CPU to its first right answer."""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from loadtests import bars, procfs
from loadtests.client import Load, Run
from loadtests.measure import Generator
from loadtests.processes import Cores, end
from loadtests.questions import Questions, Shape, fault_in_plain
from loadtests.summary import Verdict
from loadtests.targets import Target, logged, prepare, read_port, running_gateway, serve

MIB = 2**20
IDLE_S = 10.0
CONCURRENCY = 16
NUMBERS = 80_000_000
"""Questions from here on, so that none repeats those of the cells."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is asked. Growth is judged at full extent alone."""

    starts: int = 5
    filling: int = 25_000
    """Requests that fill what is bounded, as the cache of a team is (20,000 answers), before growth is looked at."""
    growing: int = 100_000


QUICK = Extent(starts=1, filling=500, growing=1000)


@dataclass(slots=True)
class Footprint:
    """Bytes of PSS by process, at three moments; CPU seconds of each start."""

    extent: Extent
    idle: dict[str, int] = field(default_factory=dict)
    filled: dict[str, int] = field(default_factory=dict)
    grown: dict[str, int] = field(default_factory=dict)
    starts_cpu_s: list[float] = field(default_factory=list)
    fault: str = ""

    def verdicts(self) -> list[Verdict]:
        idle, grown = total(self.idle) / MIB, (total(self.grown) - total(self.filled)) / MIB
        start = statistics.median(self.starts_cpu_s)
        full = self.extent.growing >= Extent().growing
        void = f"VOID: {self.fault}" if self.fault else ""
        return [
            Verdict("idle memory, whole tree (PSS)", idle, "MiB", bars.IDLE_MIB, bars.IDLE_MIB.verdict(idle)),
            Verdict(
                f"its growth over {self.extent.growing:,} requests", grown, "MiB", bars.GROWTH_MIB,
                void or (bars.GROWTH_MIB.verdict(grown) if full else "not judged: too few requests"),
            ),
            Verdict("start to first right answer", start, "CPU s", bars.START_CPU_S, bars.START_CPU_S.verdict(start)),
        ]  # fmt: skip


def total(pss: dict[str, int]) -> int:
    return sum(pss.values())


def measure(
    folder: Path, cores: Cores, upstream: int, generator: Generator, extent: Extent, say: Callable[[str], None]
) -> Footprint:
    """On gateways of its own, started for it."""
    found = Footprint(extent)
    for number in range(extent.starts):
        say(f"footprint: start {number + 1} of {extent.starts}")
        found.starts_cpu_s.append(start_cpu_s(folder / "start", cores, upstream))
    with running_gateway(folder / "idle", cores, upstream) as target:
        assert target.root is not None
        say("footprint: idle")
        time.sleep(IDLE_S)
        found.idle = procfs.pss(target.root)
        say(f"footprint: {extent.filling:,} requests, then {extent.growing:,}")
        found.filled = _after(target, generator, NUMBERS, extent.filling, found)
        found.grown = _after(target, generator, NUMBERS + extent.filling, extent.growing, found)
    return found


def _after(target: Target, generator: Generator, first: int, count: int, found: Footprint) -> dict[str, int]:
    """Memory when `count` more questions have been answered and everything has come to rest."""
    assert target.root is not None
    assert target.ledger is not None
    place = target.ledger.place()
    generator.open(Load("127.0.0.1", target.port, target.keys[""], target.model, CONCURRENCY))
    outcome = generator.run(Run(first, count, seconds=900))
    generator.close()
    if outcome.right != count or not target.ledger.drained(place, count):
        found.fault = f"{outcome.right} of {count} right answers: {outcome.faults[:1]}"
    time.sleep(IDLE_S)
    return procfs.pss(target.root)


def start_cpu_s(folder: Path, cores: Cores, upstream: int) -> float:
    """From nothing to the first right answer; data directory, key and tables are there from before."""
    if not folder.exists():
        key = prepare(folder, upstream).keys[""]
        (folder / "key").write_text(key)
    with logged(folder) as log:
        process = serve(folder, cores, log)
        try:
            port = read_port(folder, process)
            _first_answer(port, (folder / "key").read_text())
            return procfs.cpu_s(process.pid)
        finally:
            end(process)


def _first_answer(port: int, key: str) -> None:
    """Ask until it is right. Raises TimeoutError."""
    shape, number, until = Shape(), time.time_ns() % 10_000_000 + 90_000_000, time.monotonic() + 60
    body = Questions(shape, "loadtest").body(number)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    while time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("POST", "/v1/chat/completions", body, headers)
            answer = connection.getresponse()
            said = answer.read()
            if answer.status == 200 and not fault_in_plain(said, number, shape.base_tokens):
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.01)
    raise TimeoutError("no right answer within a minute of the start")
