"""The format of log lines: limited length, escaped control characters."""

from __future__ import annotations

import logging
from typing import TextIO

from gateway.domain.text.truncation import cut
from gateway.domain.text.visible import visible

LONGEST = 2000
"""Maximum characters of a log line. A log entry with a traceback has several lines."""


class LogLines(logging.Formatter):
    """Formats log entries: cuts long lines and escapes control and invisible characters."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if len(text) > LONGEST:  # also cut before escaping, which may turn one character into ten
            text = _short(text)
        text = visible(text, lines=True)
        return text if len(text) <= LONGEST else _short(text)


def _short(text: str) -> str:
    return "\n".join([cut(line, LONGEST) for line in text.split("\n")])


def log_to(stream: TextIO | None = None) -> None:
    """Log to `stream` (standard error if None) from level INFO on. Call it once, at the start of a process."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for library in ("faiss.loader", "asyncio"):
        logging.getLogger(library).setLevel(logging.ERROR)  # their lower levels say nothing that an operator can act on
