"""Prints tables for the terminal. A table is as wide as the terminal. In a file or pipe, it is WIDE columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.status import Status
from rich.table import Table as RichTable
from rich.text import Text

from gateway.domain.text.visible import visible
from gateway.settings.environment import variable

WIDE = 200
"""Number of columns without a terminal. Rich's default of 80 would break long names into many short lines."""
_NARROWEST, _LONGEST_WORD = 16, 40
"""A column of prose is at least this wide if it is wrapped; words up to this length are not broken."""
_INDENT = 2


class Output(Console):
    """Prints strings unchanged, except that control characters are escaped. Markup is interpreted only with
    `markup=True`; emoji codes never are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text, lines=True), **options)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            shown = visible(segment.text, lines=True)
            yield segment if segment.control or shown == segment.text else Segment(shown, segment.style)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Its cells are never broken into lines, except for cells with prose."""

    title: str
    right: bool = False
    prose: bool = False


def numbers(*titles: str) -> tuple[Column, ...]:
    """Make columns that are aligned to the right."""
    return tuple(Column(title, right=True) for title in titles)


def prose(*titles: str) -> tuple[Column, ...]:
    """Make columns with sentences or lists, which may be wrapped between words. Only very long words are broken."""
    return tuple(Column(title, prose=True) for title in titles)


class Table:
    """A table that fits the terminal. Names, ids, dates and figures are never broken.

    Titles and prose are wrapped between words. A table that is still too wide is shown as records: each row is a
    paragraph of `title value` pairs. Columns without any value are left out.
    """

    def __init__(self, *columns: Column | str, title: str = "") -> None:
        self._title = title
        self._columns = [Column(one) if isinstance(one, str) else one for one in columns]
        self._rows: list[tuple[list[str], str]] = []

    def add_row(self, *cells: str, style: str = "") -> None:
        """Add a row with one cell for each column. Line breaks and control characters in cells are escaped."""
        assert len(cells) == len(self._columns), (cells, self._columns)
        self._rows.append(([visible(cell) for cell in cells], style))

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._title:
            yield Text(visible(self._title), style="italic")
        shown = [at for at in range(len(self._columns)) if not self._rows or any(row[at] for row, _ in self._rows)]
        for gap in (2, 1):
            widths = self._widths(shown, options.max_width - gap * (len(shown) - 1))
            if widths is not None:
                yield self._grid(shown, widths, gap)
                return
        yield from self._records(console, options.max_width)

    def _widths(self, shown: list[int], room: int) -> list[int] | None:
        """The widths of the columns with the indexes `shown`; None if these columns do not fit into `room`
        characters."""
        ranges = [self._range(at) for at in shown]
        widths = [natural for _, natural in ranges]
        while sum(widths) > room:
            widest = max(
                (at for at, (least, _) in enumerate(ranges) if widths[at] > least),
                key=widths.__getitem__,
                default=None,
            )
            if widest is None:
                return None
            widths[widest] -= 1
        return widths

    def _range(self, at: int) -> tuple[int, int]:
        """The minimum width of the column with index `at`, and its width without wrapping."""
        column, cells = self._columns[at], [row[at] for row, _ in self._rows]
        natural = max(map(cell_len, (column.title, *cells)))
        if column.prose:
            words = (cell_len(word) for cell in (column.title, *cells) for word in cell.split())
            return min(natural, max(_NARROWEST, min(_LONGEST_WORD, max(words, default=0)))), natural
        return max(map(cell_len, (*column.title.split(), *cells)), default=0), natural

    def _grid(self, shown: list[int], widths: list[int], gap: int) -> RichTable:
        table = RichTable(box=None, padding=(0, gap, 0, 0), pad_edge=False)
        for at, width in zip(shown, widths, strict=True):
            column = self._columns[at]
            justify = "right" if column.right else "left"
            table.add_column(Text(column.title), width=width, justify=justify, overflow="fold", vertical="top")  # type: ignore[arg-type]
        for row, style in self._rows:
            table.add_row(*(Text(row[at]) for at in shown), style=style)
        return table

    def _records(self, console: Console, width: int) -> Iterator[Text]:
        for row, style in self._rows:
            pairs = [(column.title, cell) for column, cell in zip(self._columns, row, strict=True) if cell]
            items = [cell if at == 0 else f"{title} {cell}".strip() for at, (title, cell) in enumerate(pairs)]
            lines = _packed(console, items, width)
            text = Text("\n".join(lines), style=style)
            text.stylize("bold", 0, len(items[0]) if items else 0)
            yield text


def _packed(console: Console, items: list[str], width: int) -> list[str]:
    """Join the items to lines of at most `width` characters. An item that fits into one line is not broken. Lines after
    the first are indented."""
    lines: list[str] = []
    for item in items:
        if lines and cell_len(f"{lines[-1]} · {item}") <= width:
            lines[-1] += f" · {item}"
            continue
        for part in Text(item).wrap(console, width - _INDENT, overflow="fold"):
            lines.append(f"{' ' * _INDENT if lines else ''}{part.plain.rstrip()}")
    return lines


def console(*, highlight: bool = True, stderr: bool = False) -> Console:
    """Make a console. If the environment variable COLUMNS is set, it is the width."""
    paper = Output(highlight=highlight, stderr=stderr)
    if not paper.is_terminal and not variable("COLUMNS"):
        paper.width = WIDE
    return paper


def percent(share: float | Decimal) -> str:
    """Format a share as a percentage with one decimal. A share above 0 is never shown as 0."""
    return "below 0.1%" if 0 < float(share) < 0.0005 else f"{share:.1%}"


def sentences(*texts: str) -> None:
    """Print sentences for people, wrapped between words. A path or an address is never broken."""
    paper = console(highlight=False)
    for text in texts:
        lines = wrap(visible(text), paper.width, break_long_words=False, break_on_hyphens=False)
        paper.print(Text("\n".join(lines)), soft_wrap=True)


def working(text: str) -> Status:
    """Show `text` with a spinner on standard error while the context is open, if standard error is a terminal."""
    return console(stderr=True).status(text)
