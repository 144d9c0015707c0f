"""Measures the processor time of one verification of a semantic hit: `python -m loadtests verify`.

Each stored question has been read before; the asked one is fresh. The pairs are our own English paraphrases and near
misses, or those of a file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import orjson

from gateway.cache.verifier.verify import WEIGHTS, Verifier

COSINE = 0.9
PARAPHRASES = WEIGHTS.with_name("paraphrases.json")


def own_pairs() -> list[tuple[str, str]]:
    groups = orjson.loads(PARAPHRASES.read_bytes())
    return [pair for group in groups for pair in combinations([*group["same"], *group["other"]], 2)]


def measure(pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Milliseconds of processor time of one verification: median, and the 99th percentile."""
    verifier = Verifier.load()
    verifier.verify("How do I boil an egg?", "What is the way to boil an egg?", COSINE)
    spent = []
    for number, (stored, asked) in enumerate(pairs):
        fresh = f"{asked} {number}"  # never read before
        verifier.read(f"{stored} {number}")
        began = time.thread_time_ns()
        verifier.verify(f"{stored} {number}", fresh, COSINE)
        spent.append((time.thread_time_ns() - began) / 1e6)
    median, most = np.quantile(spent, (0.5, 0.99))
    return float(median), float(most)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests verify", description=__doc__)
    parser.add_argument("--pairs", type=Path, help="JSONL with `a` and `b`")
    options = parser.parse_args(arguments)
    pairs = own_pairs()
    if options.pairs:
        rows = [orjson.loads(line) for line in options.pairs.read_bytes().splitlines()]
        pairs = [(row["a"], row["b"]) for row in rows]
    median, most = measure(pairs)
    print(f"{len(pairs)} verifications: {median:.3f} ms p50, {most:.3f} ms p99 of processor time")
    return 0
