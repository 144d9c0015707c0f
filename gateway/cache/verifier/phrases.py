"""Recognises phrases that have moved to another position in the other question without a change of meaning: `For EECS
280, who …?`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from gateway.cache.verifier.align import Gap
from gateway.cache.verifier.text import Token

_ENDING = re.compile(r"[aeos]{1,2}$")


@lru_cache(maxsize=16384)
def root(form: str) -> str:
    """The root of a word. Forms such as `roja` and `rojo` have the same root, because an adjective that moves together
    with its noun may change its ending."""
    return _ENDING.sub("", form) if len(form) > 3 else form


def carried(
    gaps: Sequence[Gap],
    moved: frozenset[str],
    forms: tuple[tuple[str, ...], tuple[str, ...]],
    prepositions: frozenset[str],
) -> bool:
    """Whether whole phrases moved, each together with its preposition. If so, no word has another role in the sentence.

    `from A to B` and `to B from A` have the same meaning. In `from B to A`, A has moved without its preposition.
    `moved`: roots of the words that are in gaps of both texts. `forms`: the words of both texts.
    """
    left, right = (sorted(_runs(side, moved)) for side in zip(*((gap.stored, gap.asked) for gap in gaps), strict=True))
    if left != right:
        return False
    return all(run[0] in prepositions for run in left) or (len(left) == 1 and _rotated(left[0], forms, prepositions))


def _runs(side: Iterable[list[Token]], moved: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Yield each uninterrupted sequence of moved words in the gaps of one text."""
    for tokens in side:
        run: list[str] = []
        for token in tokens:
            if root(token.form) in moved:
                run.append(token.form)
            elif run:
                yield tuple(run)
                run = []
        if run:
            yield tuple(run)


def _rotated(
    run: tuple[str, ...], forms: tuple[tuple[str, ...], tuple[str, ...]], prepositions: frozenset[str]
) -> bool:
    """Whether the two texts consist of the same two parts in opposite order: `run`, and a phrase that begins with a
    preposition. Example: "how many days in May" and "in May how many days"."""
    size = len(run)
    return any(
        first[:size] == run and last[-size:] == run and last[0] in prepositions for first, last in (forms, forms[::-1])
    )


_AND_OR = frozenset({"and", "or", "y", "e", "ou"})
"""Words that join two nouns with one preposition: in `between A and B`, the preposition `between` also applies to B."""


def roles_exchanged(
    stored: Sequence[Token], asked: Sequence[Token], prepositions: frozenset[str], is_content: Callable[[Token], bool]
) -> bool:
    """Whether words have exchanged their prepositions, as in `a list to a tuple` and `a tuple to a list`, or in `from A
    to B` and `to A from B`. A word without a preposition counts as if it had an empty preposition."""
    before, now = (_roles(side, prepositions, is_content) for side in (stored, asked))
    changes = {(before[word], now[word]) for word in before.keys() & now.keys() if before[word] != now[word]}
    while ends := {new for _, new in changes} - {old for old, _ in changes}:
        changes = {(old, new) for old, new in changes if new not in ends}
    return bool(changes)  # the changes that are left form a cycle


def _roles(
    tokens: Sequence[Token], prepositions: frozenset[str], is_content: Callable[[Token], bool]
) -> dict[str, str]:
    """Root of a content word → the preposition of the phrase that contains the word; empty if the phrase has no
    preposition."""
    roles: dict[str, str] = {}
    role = last = ""
    for token in tokens:
        if token.form in prepositions:
            role = token.form
        elif token.form in _AND_OR:
            role = last
        elif is_content(token):
            roles.setdefault(root(token.form), role)
            role, last = "", role
    return roles
