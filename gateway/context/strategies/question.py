"""Finds the questions that a user asks about a document."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LINES = 4
"""Number of lines at the beginning and at the end of a message in which a question is searched."""
_LONGEST = 400
"""Maximum characters of a question. Of a longer line, only the sentence with the question mark counts."""
_SENTENCE_END = re.compile(r"[.!](?=\s)")
"""Matches the end of a sentence that is no question."""
_OF_ALL = re.compile(
    r"\b(?:summar|resum|sintetiz|sintetic|tl;?dr|overview|outline|translat|traduc|traduz|rewrit|reescri|rephras"
    r"|reformul|paraphras|parafras|proofread|corrig|correct|review|revis|improv|mejora|melhora|everything"
    r"|tod[oa]s?\b|tudo|all\b)",
    re.IGNORECASE,
)
"""Matches the beginnings of words that ask about a whole document in English, Spanish and Portuguese."""


def questions_in(text: str) -> tuple[str, ...]:
    """At most two questions from a user's `text`: the last one in its last lines, and the first one in its first lines.

    Empty if there is no question, or if one of them seems to be about the whole document.
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    edges = [*reversed(lines[-_LINES:])], lines[:_LINES]
    found = [asked for edge in edges if (asked := _first(edge)) is not None]
    return () if any(map(_OF_ALL.search, found)) else tuple(dict.fromkeys(found))


def _first(lines: Iterable[str]) -> str | None:
    for line in lines:
        if "?" in line:
            if len(line) <= _LONGEST:
                return line
            asked = [f"{_SENTENCE_END.split(part)[-1]}?" for part in line.split("?")[:-1]]
            if short := [each.strip() for each in asked if len(each) <= _LONGEST]:
                return short[-1]
    return None
