"""Outcomes of imagined models, drawn so that what pays is known beforehand."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from gateway.routing.fit.outcomes import Outcomes, read_outcomes

POOL: dict[str, tuple[float, float]] = {
    "tiny": (0.05, 0.1),
    "mini": (0.06, 0.2),
    "midi": (0.2, 0.6),
    "grand": (3.0, 15.0),
}
"""USD per 1M tokens."""
RIGHT = {"tiny": 0.75, "mini": 0.8, "midi": 0.85, "grand": 0.9}


def rows(count: int = 400, *, seed: int = 0, votes: bool = True, right: Mapping[str, float] = RIGHT) -> list[Any]:
    """Models err independently and never in the same way, so agreement proves an answer right."""
    chance = np.random.default_rng(seed)
    found = []
    for number in range(count):
        good = {model: bool(chance.random() < rate) for model, rate in right.items()}
        row = {
            "id": f"p{number}",
            "prompt": f"What is {number} plus {int(chance.integers(1000))}?",
            "q": {model: int(ok) for model, ok in good.items()},
            "out_tok": dict.fromkeys(good, 100),
        }
        if votes:
            row["ans"] = {model: "42" if ok else f"wrong {model}" for model, ok in good.items()}
        found.append(row)
    return found


def write(path: Path, lines: list[Any]) -> Path:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        file.write(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


def outcomes(folder: Path, lines: list[Any], pool: Mapping[str, tuple[float, float]] = POOL) -> Outcomes:
    return read_outcomes([write(folder / "rows.jsonl", lines)], pool)
