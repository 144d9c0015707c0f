"""The matrix as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loadtests.matrix_judge import longest_s, recovery_s
from loadtests.matrix_run import Result

HEAD = ("part", "fault", "asked", "200", "else", "degraded", "longest", "back after", "ledger", "verdict")


def lines(results: Sequence[Result]) -> list[str]:
    """Aligned columns, then what each fault stands for, then complaints."""
    rows = [HEAD, *map(_row, results)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    table = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    table.insert(1, "  ".join("-" * width for width in widths))
    table += ["", *(f"{result.cell.name}: {result.means}" for result in results if result.means)]
    odd = [f"{result.cell.name}: {what}" for result in results for what in (*result.complaints, result.not_run) if what]
    bad = sum(not result.ok for result in results)
    return [*table, "", *odd, f"{len(results) - bad} of {len(results)} cells are as declared"]


def _row(result: Result) -> tuple[str, ...]:
    cell, phases, during = result.cell, result.phases, result.during
    verdict = "ok" if result.ok else "not run" if result.not_run else "NOT"
    if phases is None:
        return (cell.part, cell.fault, *[""] * (len(HEAD) - 3), verdict)
    answered = sum(sample.answered for sample in during)
    other = Counter(sample.status for sample in during if not sample.answered)
    degraded = Counter(sample.degraded for sample in during if sample.degraded)
    asked = max(1, len(during))
    return (
        cell.part,
        cell.fault,
        str(len(during)),
        f"{answered / asked:.0%}",
        " ".join(f"{status}:{count}" for status, count in sorted(other.items())),
        " ".join(f"{part} {count / asked:.0%}" for part, count in degraded.items()),
        f"{longest_s(result.samples):.1f} s",
        f"{recovery_s(cell.expect, phases, result.samples):.1f} s",
        str(result.rows),
        verdict,
    )
