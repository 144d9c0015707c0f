"""Divides a document into passages, and tells documents from code, data and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_END = re.compile(r"(?<=[.!?…:;])\s+|\n")
"""Matches the space after a sentence, or the end of a line."""
_SMALL, _LARGE = 160, 520
"""Paragraphs are joined until a passage has `_SMALL` characters. A paragraph with more than `_LARGE` characters is
divided at the ends of sentences."""
_HEADING = re.compile(r"\s*#{1,6}\s")
_WORDS = re.compile(r"[^\W\d_]{2,}")
_NUMBERED = re.compile(r"(?m)^[ \t]*\d+[→\t|]")
_LEAST_PROSE = 0.4
_LEAST_LETTERS = 0.72
_PROSE_WORDS = 8
"""Minimum number of words of a line of prose."""


@dataclass(frozen=True, slots=True)
class Passage:
    start: int
    end: int


def passages(text: str) -> list[Passage]:
    """Split `text` into passages, in order. Together they contain the whole text. A heading is in the same passage as
    the paragraph after it."""
    found: list[Passage] = []
    begin = 0
    for piece in _pieces(text):
        if piece.end - begin < _SMALL or _HEADING.match(text, piece.start, piece.end):
            continue
        found.append(Passage(begin, piece.end))
        begin = piece.end
    if begin < len(text):
        found.append(Passage(begin, len(text)))
    return found


def _pieces(text: str) -> list[Passage]:
    found: list[Passage] = []
    for start, end in _paragraphs(text):
        if end - start <= _LARGE:
            found.append(Passage(start, end))
            continue
        begin = start
        for cut in sentence_ends(text, start, end):
            if cut - begin >= _LARGE // 2:
                found.append(Passage(begin, cut))
                begin = cut
        if begin < end:
            found.append(Passage(begin, end))
    return found


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each paragraph, with the blank lines before the paragraph."""
    start = end = at = 0
    for line in text.split("\n"):
        at += len(line) + 1
        if line and not line.isspace():
            end = min(at, len(text))
        elif start < end:
            yield start, end
            start = end
    if start < end:
        yield start, end


def sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Positions in `text` at which a sentence or a line ends, from `start` to `end`."""
    return [match.end() for match in _END.finditer(text, start, end)] + [end]


def is_document(text: str) -> bool:
    """Whether `text` is mostly prose. False for code, JSON, tables, logs and files with line numbers."""
    if text.lstrip()[:1] in ("{", "[", "<") or _NUMBERED.search(text, 0, 400):
        return False
    prose = whole = 0
    for number, part in enumerate(_FENCE.split(text)):
        for line in part.split("\n"):
            if not (size := len(line.strip())):
                continue
            whole += size
            if number % 2 == 0 and len(_WORDS.findall(line)) >= _PROSE_WORDS and _letters(line) >= _LEAST_LETTERS:
                prose += size
    return prose >= _LEAST_PROSE * whole > 0


def _letters(line: str) -> float:
    """Share of the characters in a line that are letters or spaces between words."""
    text = line.strip()
    return sum(each.isalpha() or each == " " for each in text) / len(text)
