"""The process's log: a line each, and no line longer than a terminal can show, whatever a client has sent."""

from __future__ import annotations

import logging
from typing import TextIO

from gateway.domain.kept import cut

LONGEST = 2000
"""Characters of a line; a traceback has many lines."""


class ShortLines(logging.Formatter):
    """Cuts every line of what it formats."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if len(text) <= LONGEST else "\n".join([cut(line, LONGEST) for line in text.split("\n")])


def log_to(stream: TextIO | None = None) -> None:
    """Log to `stream`, standard error if None, from level INFO on. Call it once, at the start of a process."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ShortLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
