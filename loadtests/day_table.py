"""The figures of a mixed day: a row for each stratum of each arm, the hull of single models, a table and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gateway.context.bill.blocks import BlockReader
from gateway.context.count import Counter, family_factor
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.routing.strategy.hull import corners, cost_of
from loadtests.day_clients import Answered
from loadtests.day_plan import Asked
from loadtests.day_questions import USUAL_TOKENS, Question

HITS = ("exact", "semantic", "join")
HEAD = ("arm", "stratum", "requests", "USD", "saved", "quality", "kept", "p50 ms", "p95 ms", "refused", "hits",
        "wrong hits", "learning USD")  # fmt: skip


@dataclass(slots=True)
class Row:
    """Figures of one stratum in one arm."""

    arm: str
    stratum: str
    requests: int
    usd: float
    """Dollars on the ledger, with all attempts and comparisons."""
    learning_usd: float
    """The part of `usd` for comparisons in the background."""
    quality: float | None
    """Mean recorded quality of the answers; None where no outcomes were recorded."""
    p50_ms: float
    p95_ms: float
    refused: int
    hits: int
    wrong_hits: int


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums of the ledger's rows of one team or one stratum."""

    usd: float = 0.0
    learning_usd: float = 0.0
    first_above: int = 0
    """Number of requests whose first call was expected to be dearer than the ceiling."""
    fallbacks_above: int = 0
    """Number of such calls after another call of the request, so after a failure or a weak answer."""


def row_of(arm: str, stratum: str, answered: Sequence[Answered], spent: Spent, meanings: Mapping[str, str]) -> Row:
    """`meanings`: id of a question → what its answer means. An answer with another meaning is a wrong one."""
    times = sorted(one.first_byte_ms for one in answered if one.status == 200) or [0.0]
    judged = [quality_of(one, meanings) for one in answered if one.asked.question.quality]
    hits = [one for one in answered if one.cache in HITS]
    return Row(
        arm, stratum, len(answered), spent.usd, spent.learning_usd,
        statistics.fmean(judged) if judged else None,
        statistics.median(times), times[int(0.95 * (len(times) - 1))],
        sum(one.status != 200 for one in answered), len(hits), sum(wrong(one, meanings) for one in hits),
    )  # fmt: skip


def pooled(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of several runs in one: sums, and means weighted by requests. All runs must have the same arms."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in (row for run in runs for row in run):
        found.setdefault((row.arm, row.stratum), []).append(row)
    return [_pooled(rows) for rows in found.values()]


def _pooled(rows: Sequence[Row]) -> Row:
    count = sum(row.requests for row in rows)

    def total(name: str) -> Any:
        return sum(getattr(row, name) for row in rows)

    def mean(name: str) -> float:
        return float(sum(getattr(row, name) * row.requests for row in rows) / count)

    return Row(
        rows[0].arm, rows[0].stratum, count, total("usd"), total("learning_usd"),
        None if rows[0].quality is None else mean("quality"), mean("p50_ms"), mean("p95_ms"),
        total("refused"), total("hits"), total("wrong_hits"),
    )  # fmt: skip


def wrong(one: Answered, meanings: Mapping[str, str]) -> bool:
    """Whether the answer belongs to a question with another meaning."""
    return bool(one.of) and meanings.get(one.of) != one.asked.question.meaning


def quality_of(one: Answered, meanings: Mapping[str, str]) -> float:
    """The recorded quality of the answer that the client got; 0 for no answer and for that of another question."""
    if one.status != 200 or wrong(one, meanings):
        return 0.0
    return one.asked.question.quality.get(one.model, 0.0)


def hull_usd(
    asked: Iterable[Asked], models: Sequence[str], prices: Mapping[str, Price], quality: float
) -> tuple[float, float]:
    """(Dollars of the hull at this quality, best quality of a single model) for requests of one pool. The hull is the
    best single model, or the best draw between two. It knows these outcomes."""
    counter = Counter()
    readers: dict[float, BlockReader] = {}
    usd, reached = np.zeros(len(models)), np.zeros(len(models))
    questions = [one.question for one in asked]
    for place, model in enumerate(models):
        factor = family_factor(model)
        reader = readers.setdefault(factor, BlockReader(counter.count, factor))
        usd[place] = sum(call_usd(one, model, prices[model], reader) for one in questions)
        reached[place] = sum(one.quality[model] for one in questions) / len(questions)
    kept = corners(usd, reached)
    return float(cost_of(quality, usd[kept], reached[kept])), float(reached.max())


def call_usd(question: Question, model: str, price: Price, reader: BlockReader) -> float:
    tokens = reader.read({"messages": list(question.messages)})[-1].tokens
    return price.cost(Usage(tokens, output_tokens=question.output.get(model, USUAL_TOKENS))) / 1e12


def table(rows: Sequence[Row]) -> str:
    """Markdown. `saved` and `kept` compare with the same stratum of the first arm."""
    base = {row.stratum: row for row in rows if row.arm == rows[0].arm}
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(_cells(row, base[row.stratum])) + " |" for row in rows]
    return "\n".join(lines)


def _cells(row: Row, base: Row) -> list[str]:
    saved = f"{100 * (1 - row.usd / base.usd):.1f} %" if base.usd else "–"
    quality = "–" if row.quality is None else f"{row.quality:.4f}"
    kept = "–" if row.quality is None or not base.quality else f"{row.quality / base.quality:.4f}"
    return [
        row.arm, row.stratum, str(row.requests), f"{row.usd:.3f}", saved, quality, kept, f"{row.p50_ms:.0f}",
        f"{row.p95_ms:.0f}", str(row.refused), str(row.hits), str(row.wrong_hits), f"{row.learning_usd:.4f}",
    ]  # fmt: skip


def draw(rows: Sequence[Row], strata: Sequence[str], whole: str, path: Path) -> None:
    """A stacked bar of dollars for each arm, and the quality that each arm kept. Raises ImportError without
    matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "day", "svg.fonttype": "none"}  # equal figures give equal files
    from matplotlib import pyplot

    arms = list(dict.fromkeys(row.arm for row in rows))
    found = {(row.arm, row.stratum): row for row in rows}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5), width_ratios=(3, 2), layout="constrained")
    bottom = [0.0] * len(arms)
    for stratum in strata:
        usd = [found[arm, stratum].usd for arm in arms]
        left.bar(arms, usd, bottom=bottom, label=stratum.replace("_", " "), width=0.7)
        bottom = [one + more for one, more in zip(bottom, usd, strict=True)]
    for arm, height in zip(arms, bottom, strict=True):
        left.text(arm, height, f"{100 * (1 - height / bottom[0]):+.1f} %", ha="center", va="bottom", fontsize=8)
    left.set_ylabel("USD")
    left.set_title("Dollars of the day (label: saved)")
    left.legend(fontsize=7)
    _qualities(right, found, arms, whole)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _qualities(axes: Any, found: Mapping[tuple[str, str], Row], arms: Sequence[str], whole: str) -> None:
    base = found[arms[0], whole]
    kept = [100 * (found[arm, whole].quality or 0) / (base.quality or 1) for arm in arms]
    saved = [100 * (1 - found[arm, whole].usd / base.usd) for arm in arms]
    axes.axhline(99, linestyle="--", color="#cb181d", linewidth=1)
    axes.scatter(saved, kept)
    for arm, x, y in zip(arms, saved, kept, strict=True):
        axes.annotate(arm, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=8)
    axes.set(xlabel="dollars saved, %", ylabel="quality kept, % (judged strata)", title="Judged strata")
