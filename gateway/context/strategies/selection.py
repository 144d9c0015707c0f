"""Selects the passages of a document that are sent, and writes the text that replaces the document."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.context.estimate import estimate
from gateway.context.strategies.passages import Passage
from gateway.context.strategies.ranking import scaled

_SHARES, _MOST = (0.42, 0.37, 0.32, 0.26), 0.475
"""`_SHARES`: shares of the document's tokens that the passages may have, in the order in which they are tried. The
first share is used with which passages and notes together have at most the share `_MOST`. With this limit, they have at
most half of the tokens also by exact counts."""
_VECTORS, _NOVELTY = 0.35, 0.4
"""`_VECTORS`: weight of the cosines; the common words have the rest of the weight. `_NOVELTY`: weight of the novelty,
which is added. Both were chosen on one half of the documents with planted facts, as the middle of a range with the same
result."""
_EDGE = 400
"""The first and the last passage are kept if they have at most this number of characters."""
_MARK_TOKENS = 10
_NOTE = (
    "[… about {tokens} tokens left out here and at the later marks by the gateway, because the question does not seem "
    "to concern them; repeat the call or ask for them to read them …]"
)
_MARK = "[… about {tokens} tokens left out …]"


def merged(
    words: Sequence[Sequence[float]], cosines: Sequence[Sequence[float | None]], novelties: Sequence[float]
) -> list[float]:
    """One score for each passage: its score for the question that it fits best.

    `words`: for each question, the BM25 score of each passage. `cosines`: for each question, the cosine of each
    passage; None for a passage without a vector. `novelties`: for each passage, a score of its rare words.
    """
    found: list[list[float]] = []
    for by_word, by_vector in zip(words, cosines, strict=True):
        known = [value for value in by_vector if value is not None]
        near = (
            scaled([min(known) if value is None else value for value in by_vector]) if known else [0.0] * len(by_word)
        )
        share = _VECTORS if known else 0.0
        found.append([(1 - share) * word + share * one for word, one in zip(scaled(by_word), near, strict=True)])
    fits = [max(values) for values in zip(*found, strict=True)]
    return [fit + _NOVELTY * new for fit, new in zip(fits, scaled(novelties), strict=True)]


def select(text: str, parts: Sequence[Passage], scores: Sequence[float], fixed: frozenset[int]) -> str | None:
    """The `text` with only its best passages. Each gap has a short note that says how many tokens are left out. At most
    half of the tokens remain.

    None if that is impossible. `fixed`: numbers of the passages that must remain.
    """
    sizes = [estimate(text[part.start : part.end]) for part in parts]
    whole = sum(sizes)
    for share in _SHARES:
        kept = _kept(sizes, scores, fixed, int(whole * share))
        if kept is not None and estimate(sent := _written(text, parts, sizes, kept)) <= whole * _MOST:
            return sent
    return None


def _kept(sizes: Sequence[int], scores: Sequence[float], fixed: frozenset[int], room: int) -> set[int] | None:
    """Numbers of the best passages with at most `room` tokens together, including the passages in `fixed`. None if the
    passages in `fixed` have more tokens than `room`."""
    kept = set(fixed)
    room -= sum(sizes[number] for number in fixed)
    if room < 0:
        return None
    for number in sorted(range(len(sizes)), key=lambda each: (-scores[each], each)):
        if number in kept:
            continue
        cost = sizes[number] + _MARK_TOKENS * (number - 1 not in kept and number + 1 not in kept)
        if cost <= room:
            kept.add(number)
            room -= cost
    return kept


def _written(text: str, parts: Sequence[Passage], sizes: Sequence[int], kept: set[int]) -> str:
    found: list[str] = []
    gone, template = 0, _NOTE
    for number, part in enumerate(parts):
        if number not in kept:
            gone += sizes[number]
            continue
        if gone:
            found.append(f"{template.format(tokens=gone)}\n\n")
            gone, template = 0, _MARK
        found.append(text[part.start : part.end])
    if gone:
        found.append(f"\n\n{template.format(tokens=gone)}")
    return "".join(found)


def edges(text: str, parts: Sequence[Passage], questions: Sequence[str]) -> frozenset[int]:
    """Numbers of the passages that are always kept: those with a question, and short ones at the beginning and end."""
    ends = [number for number in (0, len(parts) - 1) if parts[number].end - parts[number].start <= _EDGE]
    asked = [
        number
        for number, part in enumerate(parts)
        if any(question[-80:] in text[part.start : part.end] for question in questions)
    ]
    return frozenset(ends + asked)
