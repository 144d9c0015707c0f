"""Where tables are printed: as wide as the terminal; into a file or a pipe as wide as they like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from gateway.domain.text.visible import visible
from gateway.settings.environment import variable

WIDE = 200
"""Columns; Rich would take 80 where there is no terminal, and squeeze names into towers of syllables."""


class Output(Console):
    """Prints strings as they are: no markup unless `print(…, markup=True)` asks for it, no emoji by code,
    and control characters written out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text, lines=True), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            shown = visible(segment.text, lines=True)
            yield segment if segment.control or shown == segment.text else Segment(shown, segment.style)


class Table(RichTable):
    """A cell is one line of text, whatever is in it."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def console(*, highlight: bool = True, stderr: bool = False) -> Console:
    """COLUMNS, where set, has the last word on its width."""
    paper = Output(highlight=highlight, stderr=stderr)
    if not paper.is_terminal and not variable("COLUMNS"):
        paper.width = WIDE
    return paper
