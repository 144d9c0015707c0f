"""The findings of `thriftgate check` and `thriftgate doctor`. Both commands report mistakes in files in the same
way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape

from gateway.cli import tables
from gateway.cli.diagnosis.files import Checked


@dataclass(frozen=True, slots=True)
class Finding:
    well: bool
    what: str
    remedy: str = ""
    note: bool = False
    """Whether the finding is only a note: it is not a mistake, but the operator should look at it."""


def of_files(checked: Checked) -> list[Finding]:
    """The mistakes and notes about the files. If there is no mistake, the first finding names the files and teams."""
    if not checked.problems:
        good = [Finding(True, f"no mistakes in {checked.files}: policies for {', '.join(checked.teams)}")]
    else:
        good = []
    mistakes = [Finding(False, each) for each in checked.problems]
    return [*mistakes, *good, *(Finding(True, each, note=True) for each in checked.notes)]


def show(findings: Sequence[Finding]) -> None:
    """Print the findings, each with the mark of its kind, such as ✗ for a mistake."""
    console = tables.console(highlight=False)
    for one in findings:
        mark = "[yellow]![/]" if one.note else "[green]✓[/]" if one.well else "[red]✗[/]"
        text = one.what + ("" if not one.remedy or (one.well and not one.note) else f" — {one.remedy}")
        # In a file or pipe, each finding is one line.
        console.print(mark, escape(text), markup=True, soft_wrap=not console.is_terminal)
