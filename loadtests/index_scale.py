"""`python -m loadtests index`: how fast one scope of very many questions is searched, and what it costs the loop."""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from gateway.cache.entry import Entry
from gateway.cache.keys import Question
from gateway.cache.packing import Vector, pack
from gateway.cache.semantic.service import Semantic
from gateway.domain.protocols import Embedder
from gateway.runtime import garbage_collection

DIMENSIONS = 384
_CENTRES = 2000
"""Topics that questions gather around; real ones lie in about so many directions."""
_NOISE = 0.9
_NEAR = 0.02
_TICK_S = 0.001
_FAR = 4e9


class Precomputed:
    """An embedder whose vectors are known: what is measured is what comes after it."""

    name, dimensions, max_tokens, ready, failed = "precomputed", DIMENSIONS, 256, True, False

    def __init__(self) -> None:
        self.vectors: dict[str, Vector] = {}

    def begin(self) -> None:
        """There is nothing to load."""

    async def embed(self, text: str, owner: str = "") -> Vector | None:
        return self.vectors.get(text)


@dataclass
class Late:
    """How late a task that wants its turn every millisecond gets it."""

    wall_ms: list[float] = field(default_factory=list)
    blocked_ms: list[float] = field(default_factory=list)
    """Less what the kernel let the thread wait for a core: the interpreter's lock and the loop's own work."""

    async def watch(self) -> None:
        stat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        waited = _waited_s(stat)
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            late = time.perf_counter() - began - _TICK_S
            before, waited = waited, _waited_s(stat)
            self.wall_ms.append(late * 1e3)
            self.blocked_ms.append(max(0.0, late - (waited - before)) * 1e3)


def _waited_s(stat: Path) -> float:
    return int(stat.read_bytes().split()[1]) / 1e9


class Questions:
    """Vectors around common centres, and texts that differ in a number."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._centres = self._random.normal(size=(_CENTRES, DIMENSIONS)).astype(np.float32)

    def vectors(self, count: int) -> Vector:
        noise = self._random.normal(size=(count, DIMENSIONS)).astype(np.float32)
        return _unit(self._centres[self._random.integers(0, _CENTRES, count)] + _NOISE * noise)

    def near(self, vectors: Vector) -> Vector:
        noise = self._random.normal(size=vectors.shape).astype(np.float32)
        return _unit(vectors + _NEAR * noise)


def _unit(rows: Vector) -> Vector:
    unit: Vector = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def entry(number: int, vector: Vector) -> Entry:
    question = Question(b"p" * 16, f"What does article {number} of the treaty say?")
    return Entry(number.to_bytes(16), "team", (), 0.0, _FAR, 500, question, pack(vector))


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * 4096 / 2**20


async def begun(embedder: Embedder, max_bytes: int) -> Semantic:
    """The semantic level with its verifier loaded. Raises SystemExit."""
    level = Semantic(embedder, max_bytes=max_bytes)
    level.begin()
    while not level.ready:
        if level.failed:
            raise SystemExit("the verifier could not be loaded; see the log")
        await asyncio.sleep(0.05)
    return level


async def measure(count: int, lookups: int, seed: int) -> dict[str, float]:
    """Fill one scope with `count` questions, have its lists trained, look up while others come and go."""
    questions, embedder = Questions(seed), Precomputed()
    level = await begun(embedder, 2**34)
    garbage_collection.settle()
    before = resident_mib()
    figures: dict[str, float] = {"questions": count}
    training, asked = Late(), []
    began = time.perf_counter()
    for start in range(0, count, 1000):
        vectors = questions.vectors(min(1000, count - start))
        for place, vector in enumerate(vectors):
            level.add(entry(start + place, vector))
            if place % 64 == 0:
                await asyncio.sleep(0)
        garbage_collection.leave_out()
        step = max(1, count // lookups)
        asked += [(start + place, vectors[place]) for place in range(0, len(vectors), step)]
        await level.apply()
    figures["fill_s"] = time.perf_counter() - began
    watching = asyncio.get_running_loop().create_task(training.watch())
    await level.train()
    watching.cancel()
    figures["memory_mib"] = resident_mib() - before
    figures["bytes_counted_mib"] = float(level.stats()["semantic_bytes"]) / 2**20
    figures |= await _look_up(level, embedder, questions, asked[:lookups])
    figures["blocked_while_trained_max_ms"] = max(training.blocked_ms, default=0.0)  # none where there are no lists
    await level.aclose()
    return figures


async def _look_up(
    level: Semantic, embedder: Precomputed, questions: Questions, asked: list[tuple[int, Vector]]
) -> dict[str, float]:
    late, times, cpu, found = Late(), [], [], 0
    near = questions.near(np.array([vector for _, vector in asked]))
    fresh = questions.vectors(len(asked))
    await level.find(_question(asked[0][0]), "", 0.01)
    watching = asyncio.get_running_loop().create_task(late.watch())
    for place, (number, _) in enumerate(asked):
        question = _question(number)
        embedder.vectors[question.text] = near[place]
        began = time.perf_counter()
        look = await level.find(question, "", 0.01)
        times.append((time.perf_counter() - began) * 1e3)
        cpu.append(look.cpu_s * 1e3)
        found += look.found is not None and look.found.digest == number.to_bytes(16)
        level.add(entry(10**9 + place, fresh[place]))
        if place >= 20:
            level.remove(entry(10**9 + place - 20, fresh[place - 20]))
        await asyncio.sleep(0.002)
    watching.cancel()
    return {
        "lookup_p50_ms": float(np.percentile(times, 50)),
        "lookup_p99_ms": float(np.percentile(times, 99)),
        "lookup_cpu_p50_ms": float(np.percentile(cpu, 50)),
        "lookup_cpu_p99_ms": float(np.percentile(cpu, 99)),
        "recall": found / len(asked),
        "loop_late_p99_ms": float(np.percentile(late.wall_ms, 99)),
        "loop_blocked_p99_ms": float(np.percentile(late.blocked_ms, 99)),
        "loop_blocked_max_ms": max(late.blocked_ms),
    }


def _question(number: int) -> Question:
    return Question(b"p" * 16, f"What does the article {number} of the treaty say?")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests index", description=__doc__)
    parser.add_argument("--questions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--lookups", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rows = [asyncio.run(measure(count, options.lookups, options.seed)) for count in options.questions]
    table = Table("", *(f"{row['questions']:,.0f}" for row in rows))
    for name in rows[0]:
        table.add_row(name.replace("_", " "), *(f"{row[name]:,.2f}" for row in rows))
    Console(width=120).print(table)
    return 0
