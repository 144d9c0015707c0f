"""One run of one entry: asks, waits until the books are drained, and says what it took and whether it may count."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.request import Request, urlopen

import redis

from loadtests import procfs
from loadtests.cells import Cell, Entry, Size
from loadtests.client import Load, Outcome, Run
from loadtests.configs import PRICE_PICO
from loadtests.ledgers import Sums
from loadtests.processes import Cores, end, receive, send, start
from loadtests.questions import Shape
from loadtests.targets import Target, upstream_counts

PRIME_S = 120.0
FLUSH_S = 1.5
"""Until what a worker stores in the background has been stored."""
STRAYS = 0.02
"""Share of answers that may be of another kind than the cell is about: an answer fetched, asked for anew, or given
while the state server was slow."""
SEEN = 3
"""Requests of a session before it is measured: a round begins in the midst of sessions that are in progress."""
GENTLE, PASSES = 2, 2
"""More texts at a time would take longer than the gateway waits for its embedder; what was late is embedded later."""
COUNTED = ("embedder_embedded", "embedder_recalled", "exact", "semantic", "recalled")


@dataclass(slots=True)
class Figure:
    """What one run of one entry gave."""

    cell: str
    entry: str
    target: str
    round: int
    outcome: Outcome
    cpu_s: float | None = None
    """Of the target's whole process tree, until its ledger was drained."""
    embedding_s: float | None = None
    """Of that, in the thread that took most beside the workers' main ones: where the embedder is on, it is that."""
    counted: dict[str, float] = field(default_factory=dict)
    """What the gateway counted meanwhile, by `COUNTED`, and the commands that its state server was given."""
    void: str = ""
    """Why it does not count; empty when it does."""

    @property
    def cpu_us(self) -> float | None:
        """Microseconds of CPU per right answer."""
        return self.cpu_s / self.outcome.right * 1e6 if self.cpu_s is not None and self.outcome.right else None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "cpu_us": self.cpu_us}


class Generator:
    """The load process, as this one sees it."""

    def __init__(self, core: int) -> None:
        self._process = start([sys.executable, "-m", "loadtests.client"], core, piped=True)

    def open(self, load: Load) -> None:
        send(self._process, {"do": "open", **asdict(load)})
        receive(self._process)

    def run(self, run: Run) -> Outcome:
        send(self._process, {"do": "run", **asdict(run)})
        return Outcome(**receive(self._process))

    def close(self) -> None:
        send(self._process, {"do": "close"})
        receive(self._process)

    def end(self) -> None:
        end(self._process)


@contextmanager
def running_generator(cores: Cores) -> Iterator[Generator]:
    generator = Generator(cores.others)
    try:
        yield generator
    finally:
        generator.end()


@dataclass(slots=True)
class Standing:
    """Where everything stood at a moment."""

    upstream: dict[str, int]
    counted: dict[str, float]
    threads_s: dict[int, float]
    cpu_s: float


@dataclass(slots=True)
class Bench:
    """Keeps the numbers of the questions apart, and learns how many of them fill a round."""

    generator: Generator
    upstream: int
    size: Size
    _next: int = 1
    _cost_s: dict[tuple[str, str], float] = field(default_factory=dict)
    _primed: dict[tuple[str, str], int] = field(default_factory=dict)
    _told: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many of the answers that are asked for over and over have been, so that the next round goes on there."""

    def measure(self, cell: Cell, entry: Entry, target: Target, number: int) -> Figure:
        """Round `number` of `entry`."""
        self._prime(cell, entry, target)
        self.generator.open(load_of(entry.shape or cell.shape, target, cell.concurrency, hits=bool(entry.distinct)))
        self._warm(cell, entry, target)
        run = self._run(cell, entry, self._appetite(cell, entry), self.size.seconds)
        place, before = target.ledger.place() if target.ledger else 0, self._stand(target)
        outcome = self.generator.run(run)
        figure = Figure(cell.name, entry.name, target.name, number, outcome)
        figure.void = self._settle(figure, entry, entry.shape or cell.shape, target, place, before)
        self.generator.close()
        if figure.cpu_us:
            self._cost_s[cell.name, entry.name] = figure.cpu_us / 1e6
        return figure

    def _take(self, count: int) -> int:
        first, self._next = self._next, self._next + count
        return first

    def _run(self, cell: Cell, entry: Entry, most: int, seconds: float) -> Run:
        """The next `most` questions of an entry."""
        name = (cell.name, entry.name)
        if not entry.distinct:
            return Run(self._take(most), most, seconds=seconds)
        skip = self._told.get(name, 0)
        self._told[name] = skip + most
        return Run(self._primed[name], most, entry.distinct, skip, seconds)

    def _warm(self, cell: Cell, entry: Entry, target: Target) -> None:
        """Connections, caches and code are warm, and its rows are in the ledger."""
        name, place = (cell.name, entry.name), target.ledger.place() if target.ledger else 0
        before_s = procfs.cpu_s(target.root) if target.root else 0.0
        shape = entry.shape or cell.shape
        least = SEEN * shape.at_a_time if shape.turns else cell.concurrency
        run = self._run(cell, entry, max(self.size.warm, least), self.size.seconds / 2)
        warmed = self.generator.run(run).answers
        if target.root and warmed and name not in self._cost_s:
            self._cost_s[name] = max(procfs.cpu_s(target.root) - before_s, 0.005) / warmed
        if target.ledger:
            target.ledger.drained(place, warmed)

    def _prime(self, cell: Cell, entry: Entry, target: Target) -> None:
        """Have the answers stored that are to be hits, or the texts embedded that are to be known; once per entry."""
        shape, name = entry.shape or cell.shape, (cell.name, entry.name)
        count = entry.distinct or PASSES * shape.known
        if not count or name in self._primed:
            return
        place = target.ledger.place() if target.ledger else 0
        first = self._take(count)
        self.generator.open(load_of(shape, target, min(cell.concurrency, GENTLE), hits=bool(entry.distinct)))
        asked = self.generator.run(Run(first, count, seconds=PRIME_S)).answers
        self.generator.close()
        if target.ledger:
            target.ledger.drained(place, asked)
        time.sleep(FLUSH_S)
        self._primed[name] = first if entry.distinct else 0

    def _appetite(self, cell: Cell, entry: Entry) -> int:
        """Questions of a round: enough for its share of requests and for /proc's ticks, not beyond its share of CPU."""
        size, share = self.size, self.size.requests // self.size.rounds
        cost = self._cost_s.get((cell.name, entry.name))
        if cost is None:
            return max(share, cell.concurrency)
        wanted = max(share, int(size.least_cpu_s / cost))
        return max(min(wanted, int(size.cpu_s / size.rounds / cost)), cell.concurrency)

    def _stand(self, target: Target) -> Standing:
        """The CPU is read last: to ask for the rest costs the target some."""
        sent, counted = upstream_counts(self.upstream), counted_by(target)
        return Standing(sent, counted, threads_s(target), procfs.cpu_s(target.root) if target.root else 0.0)

    def _settle(self, figure: Figure, entry: Entry, shape: Shape, target: Target, place: int, before: Standing) -> str:
        """Adds what it took; returns why the run is void, if it is."""
        outcome = figure.outcome
        if target.ledger:
            target.ledger.drained(place, outcome.answers)
        if target.root:
            figure.cpu_s = procfs.cpu_s(target.root) - before.cpu_s
        if target.data:
            took = {thread: spent - before.threads_s.get(thread, 0.0) for thread, spent in threads_s(target).items()}
            figure.embedding_s = max(took.values(), default=0.0)
            now = counted_by(target)
            figure.counted = {name: now[name] - before.counted.get(name, 0.0) for name in now}
        sent_now = upstream_counts(self.upstream)
        sent = {name: sent_now[name] - before.upstream[name] for name in sent_now}
        if fault := fault_of(outcome, sent, hits=bool(entry.distinct)):
            return fault
        if target.ledger is None:
            return ""
        if fault := unbilled(outcome, sent, target.ledger.bought(place), target.ledger.recalled(place)):
            return fault
        embedded = figure.counted["embedder_embedded"] / outcome.right
        if embedded > STRAYS and not shape.short:
            return f"{embedded:.0%} of the questions were embedded, and none should have been"
        at_hand = figure.counted["recalled"] / outcome.right
        if entry.distinct and abs(at_hand - entry.from_memory) > STRAYS:
            return f"{at_hand:.0%} of the answers were in the worker's memory, not what this cell is about"
        return ""


def load_of(shape: Shape, target: Target, concurrency: int, *, hits: bool = False) -> Load:
    """`hits`: over the team whose answers are asked for again."""
    key = target.keys.get("hits" if hits else "agents" if shape.turns else "", target.keys[""])
    model = target.model if shape.dialect == "chat" else f"{target.model}-{shape.dialect}"
    return Load("127.0.0.1", target.port, key, model, concurrency, shape)


def fault_of(outcome: Outcome, sent: dict[str, int], *, hits: bool) -> str:
    """What is wrong with the answers themselves, or with how many of them the upstream was asked for."""
    if outcome.wrong or outcome.lost:
        return f"{outcome.wrong} wrong and {outcome.lost} lost answers: {'; '.join(outcome.faults[:2])}"
    if not outcome.right:
        return "no answer at all"
    if sum(outcome.degraded.values()) > STRAYS * outcome.right:
        return f"of {outcome.right} answers a degraded gateway gave {outcome.degraded}"
    if sent["cut_off"]:
        return f"the upstream was cut off {sent['cut_off']} times"
    if hits and sent["requests"] > STRAYS * outcome.right:
        return f"{sent['requests']} of {outcome.right} answers were no hits"
    if not hits and sent["requests"] != outcome.right:
        return f"the upstream sent {sent['requests']} answers, {outcome.right} arrived"
    told = (outcome.input_tokens, outcome.output_tokens)
    if not hits and told != (sent["input_tokens"], sent["output_tokens"]):
        return f"the clients were told {told} tokens, the upstream sent {sent}"
    return ""


def unbilled(outcome: Outcome, sent: dict[str, int], bought: Sums, recalled: Sums) -> str:
    """How the ledger differs from what the upstream sent, and from what the cache gave; empty when it does not."""
    rows = (bought.rows, bought.input_tokens, bought.output_tokens)
    should = (sent["requests"], sent["input_tokens"], sent["output_tokens"])
    if rows != should:
        return f"ledger: (rows, input, output) {rows}, upstream: {should}"
    cost = bought.input_tokens * PRICE_PICO[0] + bought.output_tokens * PRICE_PICO[1]
    if bought.cost_pico != cost:
        return f"ledger: {bought.cost_pico} pico-dollars, should be {cost}"
    from_cache = outcome.right - sent["requests"]
    if recalled.rows != from_cache or recalled.cost_pico:
        return f"ledger: {recalled.rows} rows from the cache, should be {from_cache}, free of charge"
    if bought.not_ok or recalled.not_ok or bought.estimated:
        return f"ledger: {bought.not_ok + recalled.not_ok} rows not ok, {bought.estimated} estimated"
    told = outcome.input_tokens - sent["input_tokens"], outcome.output_tokens - sent["output_tokens"]
    if (recalled.input_tokens, recalled.output_tokens) != told:
        return f"ledger: {recalled[1:3]} tokens from the cache, should be {told}"
    return ""


def threads_s(target: Target) -> dict[int, float]:
    """CPU seconds of the threads of a gateway's workers, without their main ones."""
    workers = target.facts()["workers"] if target.data else []
    return {thread: spent for pid in workers for thread, spent in procfs.threads_s(pid).items() if thread != pid}


def counted_by(target: Target) -> dict[str, float]:
    """What a gateway has counted since its start."""
    if target.data is None:
        return {}
    bearer = {"authorization": f"Bearer {target.keys['admin']}"}
    with urlopen(Request(f"http://127.0.0.1:{target.port}/metrics", headers=bearer), timeout=10) as answer:
        text = answer.read().decode()
    counted = {name: sum(map(float, re.findall(rf'figure="{name}".*}} (\S+)', text))) for name in COUNTED}
    with redis.Redis.from_url(target.facts()["valkey"]["url"]) as server:
        found: Any = server.info("stats")
        counted["state_calls"] = float(found["total_commands_processed"])
    return counted
