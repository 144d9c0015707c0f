"""What is measured: cells, each a workload at one concurrency, with the targets that stand in it side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch

from loadtests.agent_answers import PATHS
from loadtests.questions import Shape

CONCURRENCIES = (1, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a cell."""

    target: str
    label: str = ""
    shape: Shape | None = None
    """None: the cell's."""
    distinct: int = 0
    """Not 0: so many questions over and over, each answered once before."""
    from_memory: bool = False
    """Of these answers: the worker has them at hand, or must fetch each."""

    @property
    def name(self) -> str:
        return self.label or self.target


@dataclass(frozen=True, slots=True)
class Cell:
    """All its entries run once per round, in a new order each time."""

    workload: str
    concurrency: int
    shape: Shape
    entries: tuple[Entry, ...]
    base: str = "nginx"
    """The entry that the others are divided by."""
    about: str = ""
    most: int = 0
    """Highest concurrency that makes sense; 0: any."""

    def at(self, concurrency: int) -> Cell:
        concurrency = min(concurrency, self.most or concurrency)
        shape = self.shape
        if shape.turns and concurrency > shape.at_a_time:  # each session has one request at a time
            shape = replace(shape, at_a_time=concurrency)
        return replace(self, concurrency=concurrency, shape=shape)

    @property
    def name(self) -> str:
        return f"{self.workload}-c{self.concurrency}"


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a cell is one round."""

    rounds: int = 5
    requests: int = 20_000
    """Of a cell, over all its rounds."""
    cpu_s: float = 5.0
    """Of a cell, over all its rounds: whichever is reached first."""
    least_cpu_s: float = 0.25
    """Of a round: below it, /proc's ticks of 10 ms would show in the figures."""
    seconds: float = 20.0
    """Of a round, by the clock: a slow target must not take for ever."""
    warm: int = 200


QUICK = Size(rounds=3, requests=1500, cpu_s=1.5, least_cpu_s=0.1, seconds=5.0, warm=50)
_PLAIN = (Entry("direct"), Entry("nginx"), Entry("thriftgate"))
_PEER = Entry("litellm")
LRU, GET = 20, 10_000
"""Answers asked for over and over: few enough to stay in a worker's memory; too many for it, so each is fetched."""
EMBEDDING = 4
"""Questions that are embedded at a time: with more, the gateway goes on without its embedder, by design."""
AGENT_TURNS, AGENT_BYTES = 100, 310 * 1024
"""Requests of an agent's session, and the mean size of their bodies."""
SHORT_TURNS, SHORT_BYTES = 30, 107 * 1024
"""Of a session of one client, which grows as fast."""
KNOWN = 200
"""Texts whose vectors the embedder remembers."""


def _workloads() -> list[Cell]:
    kilobyte = Shape()
    known = Shape(known=KNOWN, temperature=0.0)
    new = Shape(short=True, temperature=0.0)
    return [
        Cell("1k", 0, kilobyte, (*_PLAIN, _PEER), about="prompt and answer of 1 KB each"),
        Cell("32k", 0, replace(kilobyte, bytes=32 * 1024), (*_PLAIN, _PEER), about="prompt of 32 KB, answer of 1 KB"),
        Cell("burst", 0, Shape("burst"), (*_PLAIN, _PEER), about="stream of 100 chunks, sent at once"),
        Cell("paced", 0, Shape("paced"), (*_PLAIN, _PEER), about="stream of 100 chunks, 5 ms apart"),
        *_agents(),
        Cell(
            "lru", 0, kilobyte,
            (Entry("thriftgate", "miss"), Entry("thriftgate", "hit", distinct=LRU, from_memory=True)), "miss",
            f"{LRU} answers asked for again and again, against misses of the same gateway",
        ),
        Cell(
            "get", 0, kilobyte,
            (Entry("thriftgate", "miss"), Entry("thriftgate", "hit", distinct=GET)), "miss",
            f"{GET} answers asked for in turn, against misses of the same gateway",
        ),
        Cell(
            "known", 0, known, (Entry("nginx"), Entry("everything")),
            about="everything on, 1 KB, new to the cache, but the user's words are known: nothing is embedded",
        ),
        Cell(
            "long", 0, replace(kilobyte, bytes=8 * 1024, temperature=0.0), (Entry("nginx"), Entry("everything")),
            about="everything on, 8 KB, too long for the embedder: nothing is embedded",
        ),
        Cell(
            "new", 0, new, (Entry("nginx"), Entry("everything")),
            about="everything on, 1 KB, the user says something new: it is embedded", most=EMBEDDING,
        ),
    ]  # fmt: skip


def _agents() -> Iterator[Cell]:
    """Coding agents: many long sessions at a time, and one short session after the other."""
    for dialect in PATHS:
        name = "" if dialect == "chat" else f"-{dialect}"
        entries = (*_PLAIN, _PEER) if dialect == "chat" else _PLAIN
        long = Shape("calls", bytes=AGENT_BYTES, turns=AGENT_TURNS, dialect=dialect)
        yield Cell(
            f"agent{name}", 0, long, entries, most=64,
            about="32 or 64 sessions of a coding agent at a time, 20 to 600 KB a request, tools, streamed tool calls",
        )  # fmt: skip
        short = replace(long, bytes=SHORT_BYTES, turns=SHORT_TURNS, at_a_time=1)
        yield Cell(
            f"session{name}", 0, short, entries, most=1,
            about=f"one client; sessions of {SHORT_TURNS} requests that begin with 20 KB and grow by 6 KB",
        )  # fmt: skip


def chosen(patterns: str, concurrencies: tuple[int, ...]) -> tuple[Cell, ...]:
    """The cells whose name or workload matches one of the comma-separated `patterns`; empty: all.

    Raises ValueError when a pattern matches nothing.
    """
    every = list(dict.fromkeys(cell.at(each) for cell in _workloads() for each in concurrencies))
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    for pattern in wanted:
        if not any(_matches(cell, pattern) for cell in every):
            raise ValueError(f"no cell is called {pattern!r}; there are {', '.join(cell.name for cell in every)}")
    return tuple(cell for cell in every if not wanted or any(_matches(cell, each) for each in wanted))


def _matches(cell: Cell, pattern: str) -> bool:
    return fnmatch(cell.name, pattern) or fnmatch(cell.workload, pattern)
