"""Where tables are printed: as wide as the terminal; into a file or a pipe as wide as they like."""

from __future__ import annotations

from rich.console import Console

from gateway.settings.environment import variable

WIDE = 200
"""Columns; Rich would take 80 where there is no terminal, and squeeze names into towers of syllables."""


def console(*, highlight: bool = True) -> Console:
    """For standard output; COLUMNS, where set, has the last word."""
    paper = Console(highlight=highlight)
    if not paper.is_terminal and not variable("COLUMNS"):
        paper.width = WIDE
    return paper
