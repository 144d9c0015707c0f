"""Reads the recorded outcomes of several models on the same prompts, for fits and replays."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.routing.fit.evaluation import DataError, reason

Array = NDArray[np.float64]
Prices = Mapping[str, tuple[float, float]]
"""Model → US dollars per 1M (input, output) tokens."""

USUAL_TOKENS = 256.0
"""Output tokens assumed for a model if the lengths of its answers were not recorded."""
TOKEN_CHARACTERS = 4
_CUT = "the file ends within this line; `outcomes build` with this file as --out removes the line and goes on"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of n prompts and m models."""

    ids: tuple[str, ...]
    prompts: tuple[str, ...]
    models: tuple[str, ...]
    quality: Array
    """Quality of each answer, n × m, 0..1. NaN: the model was not called."""
    usd: Array
    """US dollars of each call, n × m."""
    votes: tuple[tuple[str | None, ...], ...]
    """Normalised final answers, n × m. None: the answer has no vote."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The votes as numbers, n × m. In the row of a prompt, equal numbers mean equal votes, and −1 means no vote."""
        rows = []
        for row in self.votes:
            known: dict[str, int] = {}
            rows.append([-1 if vote is None else known.setdefault(vote, len(known)) for vote in row])
        return np.array(rows, dtype=np.int64).reshape(len(self), len(self.models))

    def part(self, chosen: NDArray[np.bool_]) -> Outcomes:
        """The outcomes of only the prompts selected by the mask `chosen`."""
        places = np.flatnonzero(chosen).tolist()
        return Outcomes(
            tuple(self.ids[each] for each in places),
            tuple(self.prompts[each] for each in places),
            self.models,
            self.quality[places],
            self.usd[places],
            tuple(self.votes[each] for each in places),
        )


def read_pool(path: Path) -> dict[str, tuple[float, float]]:
    """Read a pool of models: one flat JSON object `{"model": [input, output]}` with prices in US dollars per 1M tokens.
    Raises DataError, OSError."""
    form = f'{path}: give one flat object {{"model": [USD per 1M input tokens, USD per 1M output tokens]}}'
    try:
        pool = orjson.loads(path.read_bytes())
        found = {str(model): (float(price[0]), float(price[1])) for model, price in pool.items() if len(price) == 2}
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise DataError(form) from error
    if not found or len(found) != len(pool) or not all(0 <= usd < math.inf for each in found.values() for usd in each):
        raise DataError(form)
    return found


def read_outcomes(paths: Iterable[Path], prices: Prices) -> Outcomes:
    """Read rows `{"prompt", "q": {model: quality}[, "id", "out_tok", "ans"]}`, or for two models `{"prompt", "w",
    "s"}`. The files have JSON lines, plain or gzip. Rows without a known model are ignored. Raises DataError, OSError.
    """
    rows: list[dict[str, Any]] = []
    for path in paths:
        opener = gzip.open if path.suffix == ".gz" else open
        try:
            with opener(path, "rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        rows.append(_row(line, f"{path}:{number}", prices))
        except (EOFError, zlib.error) as error:
            raise DataError(f"{path}: the compressed file is cut off or damaged ({error})") from error
    rows = [row for row in rows if any(row["q"].get(model) is not None for model in prices)]
    if not rows:
        raise DataError(f"no row has an outcome of {', '.join(prices)}: compare the names of models in pool and data")
    models = tuple(model for model in prices if any(row["q"].get(model) is not None for row in rows))
    quality = np.array([[_number(row["q"].get(model)) for model in models] for row in rows])
    tokens = np.array([[_number(row["out_tok"].get(model)) for model in models] for row in rows])
    given = np.array([[_number(row["usd"].get(model)) for model in models] for row in rows])
    return Outcomes(
        tuple(str(row["id"]) for row in rows),
        tuple(row["prompt"] for row in rows),
        models,
        quality,
        _usd([row["prompt"] for row in rows], tokens, given, [prices[model] for model in models]),
        tuple(tuple(normalise(row["ans"].get(model)) for model in models) for row in rows),
    )


def _row(line: bytes, place: str, prices: Prices) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
        if not isinstance(row["prompt"], str):
            raise TypeError("prompt must be text")
        found = {"id": row.get("id", place), "prompt": row["prompt"], "usd": {}}
        found |= {key: dict(row.get(key) or {}) for key in ("q", "out_tok", "ans")}
        if not found["q"]:
            weak, strong = _pair(found["out_tok"], prices)
            found["q"] = {weak: row["w"], strong: row["s"]}
            found["usd"] = {weak: row.get("cw"), strong: row.get("cs")}
        for quality in found["q"].values():
            if quality is not None and not 0 <= float(quality) <= 1:
                raise ValueError("a quality lies outside 0..1")
        return found
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        cut = isinstance(error, orjson.JSONDecodeError) and not line.endswith(b"\n")
        hint = _CUT if cut else "see docs/reference/files.md for what a row holds"
        raise DataError(f"{place}: not an outcome ({reason(error)}); {hint}") from error


def _pair(tokens: Mapping[str, Any], prices: Prices) -> tuple[str, str]:
    """The names of the weak and the strong model in a row with two models. They are the first two models in `tokens`,
    which has the recorded lengths of the row. If the row has no lengths, they are the two models of the pool; the
    cheaper one is weak."""
    if len(tokens) == 2 and all(model in prices for model in tokens):
        weak, strong = tokens
    elif len(prices) == 2:
        weak, strong = sorted(prices, key=lambda model: sum(prices[model]))
    else:
        raise KeyError("q")
    return weak, strong


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _usd(prompts: Sequence[str], tokens: Array, given: Array, prices: Sequence[tuple[float, float]]) -> Array:
    """The costs of the calls in US dollars, shape (n prompts, m models). `tokens`: output lengths; NaN means unknown.
    `given`: the costs that were recorded with the outcomes. They are used if the length is unknown. If both are
    unknown, the mean length is used."""
    price = np.array(prices)
    inputs = np.array([len(prompt) for prompt in prompts]) / TOKEN_CHARACTERS
    known = ~np.isnan(tokens)
    usual = np.where(known.any(0), np.where(known, tokens, 0).sum(0) / np.maximum(known.sum(0), 1), USUAL_TOKENS)
    listed = (inputs[:, None] * price[:, 0] + np.where(known, tokens, usual) * price[:, 1]) / 1e6
    return np.asarray(np.where(known | np.isnan(given), listed, given), dtype=np.float64)


def normalise(answer: Any) -> str | None:
    """The answer without differences in case, spaces and number formats; None if the answer is no vote."""
    if answer is None:
        return None
    if isinstance(answer, dict | list):
        return orjson.dumps(answer, option=orjson.OPT_SORT_KEYS).decode()
    text = " ".join(str(answer).split()).casefold()
    if not re.search(r"[^\W_]", text):
        return None
    bare = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.strip("$€£% ").rstrip("."))
    try:
        number = Decimal(bare)
    except InvalidOperation:
        return text
    return format(number.normalize(), "f") if number.is_finite() else text
