"""One picture of a run: CPU against the base with the bars drawn in, and latencies; PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loadtests import bars
from loadtests.rounds import Results
from loadtests.summary import Row, rows

_COLOURS = {1: "#9ecae1", 16: "#4292c6", 64: "#2171b5", 256: "#08306b"}
_LINES = (("must", "#cb181d"), ("good", "#238b45"), ("moonshot", "#6a51a3"))


def draw(results: Results, folder: Path) -> list[Path]:
    """The files written; none when there is nothing to draw. Raises ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    found = [row for row in rows(results.plan.cells, results.figures) if not row.void]
    judged = [row for row in found if (row.workload, row.entry) in bars.RATIO and row.ratio]
    if not judged:
        return []
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(15, 6), width_ratios=(3, 2), layout="constrained")
    _ratios(left, judged)
    _latencies(right, [row for row in found if row.workload == judged[0].workload and row.p50_ms])
    written = [folder / "loadtest.png", folder / "loadtest.svg"]
    for path in written:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return written


def _ratios(axes: Any, judged: list[Row]) -> None:
    """A group per workload, a bar per concurrency, whiskers from the least to the most round."""
    workloads = list(dict.fromkeys(row.workload for row in judged))
    concurrencies = sorted({row.concurrency for row in judged})
    width = 0.8 / len(concurrencies)
    for row in judged:
        ratio = row.ratio
        assert ratio is not None
        place = workloads.index(row.workload) - 0.4 + width * (concurrencies.index(row.concurrency) + 0.5)
        error = [[ratio.median - ratio.least], [ratio.most - ratio.median]]
        colour = _COLOURS.get(row.concurrency, "#888888")
        axes.bar(place, ratio.median, width * 0.92, color=colour, yerr=error, ecolor="#555555", capsize=2)
        axes.text(place, ratio.most, f"{ratio.median:.1f}", ha="center", va="bottom", fontsize=7)
    for name, colour in _LINES:
        for number, workload in enumerate(workloads):
            entry = next(row.entry for row in judged if row.workload == workload)
            level = getattr(bars.RATIO[workload, entry], name)
            label = name if number == 0 else None
            axes.hlines(level, number - 0.45, number + 0.45, colors=colour, linestyles="--", linewidth=1.2, label=label)
    for concurrency in concurrencies:
        axes.bar(0, 0, color=_COLOURS.get(concurrency, "#888888"), label=f"concurrency {concurrency}")
    axes.set_yscale("log")
    axes.set_xticks(range(len(workloads)), workloads)
    axes.set_ylabel("CPU per answer ÷ nginx's (lru, get: ÷ own miss)")
    axes.set_title("CPU against the bars, median of rounds")
    axes.legend(fontsize=8)


def _latencies(axes: Any, found: list[Row]) -> None:
    """p50 as a point, p99 as the end of its line, by concurrency."""
    if not found:
        return
    for entry in dict.fromkeys(row.entry for row in found):
        own = sorted((row for row in found if row.entry == entry), key=lambda row: row.concurrency)
        middle = [row.p50_ms.median for row in own if row.p50_ms]
        end = [row.p99_ms.median for row in own if row.p99_ms]
        places = [str(row.concurrency) for row in own]
        (line,) = axes.plot(places, middle, marker="o", label=f"{entry} p50")
        axes.plot(places, end, marker="_", linestyle=":", color=line.get_color(), label=f"{entry} p99")
    axes.set_yscale("log")
    axes.set_xlabel("concurrency")
    axes.set_ylabel("ms")
    axes.set_title(f"Latency, {found[0].workload}")
    axes.legend(fontsize=8)
