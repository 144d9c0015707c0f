"""Tables for the terminal. They are as wide as the terminal, or WIDE columns in a file or pipe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, OverflowMethod, RenderableType, RenderResult
from rich.segment import Segment
from rich.status import Status
from rich.table import Table as RichTable
from rich.text import Text

from gateway.domain.text.visible import visible
from gateway.settings.environment import variable

WIDE = 200
"""Number of columns without a terminal. Rich's default of 80 would break long names into many short lines."""


class Output(Console):
    """Prints strings unchanged, except that control characters are escaped. There is no markup unless `markup=True` is
    given, and no emoji codes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text, lines=True), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            shown = visible(segment.text, lines=True)
            yield segment if segment.control or shown == segment.text else Segment(shown, segment.style)


class Table(RichTable):
    """A table in which each cell is one line of text. Line breaks in a cell are escaped; long text is folded."""

    def add_column(self, *names: RenderableType, overflow: OverflowMethod = "fold", **options: Any) -> None:
        super().add_column(*names, overflow=overflow, **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.__rich_measure__(console, options).minimum > options.max_width:
            for column in self.columns:  # else Rich would crop figures to their first digits
                column.no_wrap = False
        yield from super().__rich_console__(console, options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def console(*, highlight: bool = True, stderr: bool = False) -> Console:
    """A console. If the environment variable COLUMNS is set, it determines the width."""
    paper = Output(highlight=highlight, stderr=stderr)
    if not paper.is_terminal and not variable("COLUMNS"):
        paper.width = WIDE
    return paper


def working(text: str) -> Status:
    """A context manager that shows `text` with a spinner on standard error, if that is a terminal."""
    return console(stderr=True).status(text)
