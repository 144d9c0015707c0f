"""Figures of all rounds → one row per cell and entry, and the verdicts on them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadtests import bars
from loadtests.bars import Bar
from loadtests.cells import Cell
from loadtests.measure import Figure


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with what lies around it."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None without values."""
        found = [value for value in values if value is not None]
        return cls(statistics.median(found), min(found), max(found)) if found else None


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of one cell over all rounds. CPU in microseconds per answer, latencies in milliseconds."""

    cell: str
    workload: str
    concurrency: int
    entry: str
    rounds: int
    requests: int
    cpu_us: Spread | None
    ratio: Spread | None
    p50_ms: Spread | None
    p99_ms: Spread | None
    session_ms: Spread | None
    """Of all requests of a session, where one client has one session at a time."""
    added_session_ms: Spread | None
    """To these, over the base entry in the same round."""
    transit_p50_ms: Spread | None
    per_second: Spread | None
    state_calls: float | None
    """Per answer."""
    embedded: float | None
    """Texts embedded per answer."""
    other_cpu: float | None
    """CPU beside the embedding's thread ÷ that thread's; None where nothing was embedded."""
    degraded: int
    """Answers that the gateway itself called degraded."""
    void: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a bar says of a figure."""

    what: str
    value: float
    unit: str
    bar: Bar
    verdict: str
    """`moonshot`, `good`, `must`, `MISSED`, `VOID: …` or `not judged: …`."""


def row(cell: Cell, entry: str, figures: Sequence[Figure]) -> Row:
    """The row of `entry` from all figures of the run."""
    own = [each for each in figures if each.cell == cell.name and each.entry == entry]
    base = {each.round: each for each in figures if each.cell == cell.name and each.entry == cell.base}
    answers = sum(each.outcome.right for each in own)
    counted = [each for each in own if each.counted]
    return Row(
        cell.name, cell.workload, cell.concurrency, entry, len(own), answers,
        Spread.of(each.cpu_us for each in own),
        Spread.of(_ratio(each, base.get(each.round)) for each in own),
        Spread.of(each.outcome.latency_ms.get("p50") for each in own),
        Spread.of(each.outcome.latency_ms.get("p99") for each in own),
        Spread.of(_session_ms(cell, each) for each in own),
        Spread.of(_added(cell, each, base.get(each.round)) for each in own),
        Spread.of(each.outcome.transit_ms.get("p50") for each in own),
        Spread.of(each.outcome.right / each.outcome.seconds for each in own if each.outcome.seconds),
        sum(each.counted["state_calls"] for each in counted) / answers if counted and answers else None,
        sum(each.counted["embedder_embedded"] for each in counted) / answers if counted and answers else None,
        _other_cpu(own),
        sum(sum(each.outcome.degraded.values()) for each in own),
        next((each.void for each in own if each.void), ""),
    )  # fmt: skip


def _ratio(figure: Figure, base: Figure | None) -> float | None:
    """Within one round, so that both saw the same machine; a void base is no measure."""
    if base is None or base.void or not base.cpu_us or figure.cpu_us is None:
        return None
    return figure.cpu_us / base.cpu_us


def _session_ms(cell: Cell, figure: Figure) -> float | None:
    mean, shape = figure.outcome.latency_ms.get("mean"), cell.shape
    return mean * shape.turns if mean is not None and shape.turns and shape.at_a_time == 1 else None


def _added(cell: Cell, figure: Figure, base: Figure | None) -> float | None:
    own, bases = _session_ms(cell, figure), _session_ms(cell, base) if base and not base.void else None
    return own - bases if own is not None and bases is not None else None


def _other_cpu(figures: Sequence[Figure]) -> float | None:
    embedded = [each for each in figures if each.counted.get("embedder_embedded") and each.embedding_s and each.cpu_s]
    found = Spread.of((each.cpu_s or 0.0) / (each.embedding_s or 1.0) - 1 for each in embedded)
    return found.median if found else None


def rows(cells: Iterable[Cell], figures: Sequence[Figure]) -> list[Row]:
    """Of every entry that was run."""
    ran = {(each.cell, each.entry) for each in figures}
    return [
        row(cell, entry.name, figures)
        for cell in cells
        for entry in cell.entries
        if (cell.name, entry.name) in ran
    ]  # fmt: skip


def verdicts(rows: Sequence[Row], load_before: float) -> list[Verdict]:
    """On every row that a bar is about."""
    by_name = {(each.cell, each.entry): each for each in rows}
    noisy = "" if load_before < bars.QUIET else f"not judged: load average {load_before:.2f}"
    found = []
    for each in rows:
        if each.entry == "thriftgate":
            found += _of_time(each, by_name.get((each.cell, "nginx")), by_name.get((each.cell, "direct")), noisy)
        if (bar := bars.RATIO.get((each.workload, each.entry))) and each.ratio:
            what = f"{each.cell} {each.entry}: CPU ÷ {'own miss' if each.entry == 'hit' else 'nginx'}"
            found.append(_verdict(what, each.ratio.median, "×", bar, each.void))
        if each.workload == "new" and each.other_cpu is not None:
            what = f"{each.cell}: CPU beside the embedding's ÷ the embedding's"
            found.append(_verdict(what, each.other_cpu, "×", bars.OTHER_CPU, each.void))
    return found


def _of_time(row: Row, nginx: Row | None, direct: Row | None, noisy: str) -> list[Verdict]:
    """Bars on clock time, which a busy machine makes meaningless."""
    found = []
    if nginx and row.workload == "1k" and row.concurrency == 1 and row.p50_ms and nginx.p50_ms:
        added, void = row.p50_ms.median - nginx.p50_ms.median, row.void or nginx.void
        found.append(_verdict(f"{row.cell}: p50 over nginx", added, "ms", bars.ADDED_P50_MS, void, noisy))
    if nginx and row.workload == "1k" and row.concurrency == 64 and row.p99_ms and nginx.p99_ms:
        times, void = row.p99_ms.median / nginx.p99_ms.median, row.void or nginx.void
        found.append(_verdict(f"{row.cell}: p99 ÷ nginx's", times, "×", bars.P99_RATIO, void, noisy))
    if nginx and row.added_session_ms:
        added, void = row.added_session_ms.median, row.void or nginx.void
        found.append(_verdict(f"{row.cell}: a session over nginx", added, "ms", bars.ADDED_SESSION_MS, void, noisy))
    if direct and row.transit_p50_ms and direct.transit_p50_ms:
        added, void = row.transit_p50_ms.median - direct.transit_p50_ms.median, row.void or direct.void
        what = f"{row.cell}: chunk transit p50 over direct"
        found.append(_verdict(what, added, "ms", bars.TRANSIT_MS, void, noisy))
    return found


def unbilled(figures: Iterable[Figure]) -> Verdict:
    """Of all gateways together; neither nginx's faults nor a peer's count."""
    own = [each for each in figures if each.target in ("thriftgate", "everything")]
    count = sum(each.outcome.wrong + each.outcome.lost + each.void.startswith("ledger") for each in own)
    what = "wrong or lost answers, and runs whose ledger differs"
    return Verdict(what, count, "", bars.NONE, bars.NONE.verdict(count).replace("moonshot", "none"))


def _verdict(what: str, value: float, unit: str, bar: Bar, void: str, noisy: str = "") -> Verdict:
    return Verdict(what, value, unit, bar, f"VOID: {void}" if void else noisy or bar.verdict(value))
