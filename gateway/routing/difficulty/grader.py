"""Grades the difficulty of a prompt with a linear classifier, in less than a millisecond. The classifier abstains if
the prompt differs too much from its training prompts."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import orjson

from gateway.dialects.openai_chat.turns import read_turns
from gateway.domain.request import Turn
from gateway.domain.routing.route import Grade
from gateway.errors import BadRequest
from gateway.routing.difficulty.features import COUNTS, Features, extract
from gateway.routing.difficulty.weights_file import Artefact, load

MOST_TURNS = 4
"""Number of latest user turns that are graded. The highest difficulty among them is the result."""

MOST_REMEMBERED = 16_384
"""Maximum number of cached grades of turns, of about 200 bytes each. In a conversation, usually only the newest turn
must be graded."""

_OUTSIDE = Grade(0.5, abstained=True)


class Grader:
    """Grades the difficulty of texts with one classifier. The same text always gets the same grade."""

    def __init__(self, artefact: Artefact) -> None:
        self.artefact = artefact
        self._remembered: OrderedDict[bytes, Grade] = OrderedDict()

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Load the packaged weights, or the weights at `path`. Raises ArtefactError, OSError."""
        return cls(load(path))

    def grade(self, text: str) -> Grade:
        """Grade the difficulty of a text, 0..1. Abstains if the text differs too much from the training prompts."""
        features = extract(text)
        standard = (self.score(features) - self.artefact.centre) / self.artefact.spread
        return Grade(1 / (1 + math.exp(-max(-30.0, min(30.0, standard)))), bool(self.outside(text, features)))

    def grade_turns(
        self, turns: Sequence[Turn], needs: frozenset[str] = frozenset(), owner: str | None = None
    ) -> Grade:
        """Grade the hardest of the recent user turns. Requests with tools, images or files get no grade. `needs`:
        capabilities that the request needs. `owner`: scope within which grades are cached."""
        if needs & {"tools", "vision"} or any(
            turn.calls or turn.results or turn.images or turn.files for turn in turns
        ):
            return _OUTSIDE
        texts = [turn.text for turn in turns if turn.role == "user"]
        if not texts or sum(map(len, texts)) > self.artefact.support.longest:
            return _OUTSIDE
        latest = texts[-MOST_TURNS:]
        grades = [self.grade(text) if owner is None else self._recall(text, owner) for text in latest]
        return Grade(max(grade.difficulty for grade in grades), any(grade.abstained for grade in grades))

    def _recall(self, text: str, owner: str) -> Grade:
        whose = blake2b(owner.encode(), digest_size=16).digest()
        name = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=whose).digest()
        grade = self._remembered.get(name)
        if grade is None:
            grade = self._remembered[name] = self.grade(text)
            if len(self._remembered) > MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        else:
            self._remembered.move_to_end(name)
        return grade

    def score(self, features: Features) -> float:
        """The raw score of difficulty. It is the expected quality of the strong tier minus the expected quality of the
        weak tier, minus half of the mean difference for prompts of this kind."""
        return self.artefact.scorer.score(features)

    def outside(self, text: str, features: Features) -> str:
        """The reason why the classifier cannot judge the text; empty if it can."""
        support = self.artefact.support
        if len(text) > support.longest:
            return "too long"
        if self.strangeness(features) > support.most_strange:
            return "not like prose or a question"
        return "unknown words" if self.coverage(features) < support.least_coverage else ""

    def strangeness(self, features: Features) -> float:
        """A number that tells how much the text differs from the training prompts: the root mean square distance of its
        lexical counts, in standard deviations. It is large for code, logs and data."""
        standard = self.artefact.scorer.standard(features.lexical)[:COUNTS]
        return math.sqrt(float(standard @ standard) / len(standard))

    def coverage(self, features: Features) -> float:
        """The share of the text's longer words that occurred in the training prompts; 0 if the text has no words."""
        hashes = features.vocabulary
        known = self.artefact.support.vocabulary[hashes >> 3] >> (7 - (hashes & 7)) & 1
        return float(known.mean()) if len(hashes) else 0.0


def grade_lines(lines: Iterable[bytes], grader: Grader) -> Iterator[bytes]:
    """Grade prompts in JSON lines `{"id","prompt"|"messages"}`. Yields a line `{"id","difficulty"[,"abstained"]}` with
    a newline for each.

    Raises BadRequest, which names the line.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield orjson.dumps(_grade_line(line, number, grader)) + b"\n"


def _grade_line(line: bytes, number: int, grader: Grader) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"line {number}: not valid JSON ({error}); give one object a line.") from error
    if not isinstance(row, dict) or "id" not in row or ("prompt" in row) == ("messages" in row):
        raise BadRequest(f"line {number}: give an object with id and either prompt or messages.")
    if "messages" in row:
        needs = frozenset({"tools"} if row.get("tools") else ())
        grade = grader.grade_turns(_turns(row["messages"], number), needs)
    elif isinstance(row["prompt"], str):
        grade = grader.grade(row["prompt"])
    else:
        raise BadRequest(f"line {number}: prompt must be text.")
    graded = {"id": row["id"], "difficulty": grade.difficulty}
    return {**graded, "abstained": True} if grade.abstained else graded


def _turns(messages: Any, number: int) -> list[Turn]:
    try:
        return read_turns(messages)
    except BadRequest as error:
        raise BadRequest(f"line {number}: {error.message}", param=error.param) from error
