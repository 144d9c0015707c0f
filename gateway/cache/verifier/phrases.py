"""Recognises phrases that stand elsewhere in the other question, with the same meaning: `For EECS 280, who …?`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from gateway.cache.verifier.align import Gap
from gateway.cache.verifier.text import Token

_ENDING = re.compile(r"[aeos]{1,2}$")


@lru_cache(maxsize=16384)
def root(form: str) -> str:
    """The root of a word, the same for forms such as `roja` and `rojo`: an adjective that moves with its noun changes
    its ending."""
    return _ENDING.sub("", form) if len(form) > 3 else form


def carried(
    gaps: Sequence[Gap],
    moved: frozenset[str],
    forms: tuple[tuple[str, ...], tuple[str, ...]],
    prepositions: frozenset[str],
) -> bool:
    """Whether whole phrases moved, each with its preposition, so that no word has another role.

    `from A to B` and `to B from A` are the same; in `from B to A`, A has moved without its preposition. `moved`: the
    roots of the words that are in gaps of both sides; `forms`: both texts.
    """
    left, right = (sorted(_runs(side, moved)) for side in zip(*((gap.stored, gap.asked) for gap in gaps), strict=True))
    if left != right:
        return False
    return all(run[0] in prepositions for run in left) or (len(left) == 1 and _rotated(left[0], forms, prepositions))


def _runs(side: Iterable[list[Token]], moved: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """The uninterrupted sequences of moved words."""
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
    """Whether `run` begins one text and ends the other one, which begins with a preposition: the rest is the phrase
    that moved."""
    size = len(run)
    return any(
        first[:size] == run and last[-size:] == run and last[0] in prepositions for first, last in (forms, forms[::-1])
    )


_AND_OR = frozenset({"and", "or", "y", "e", "ou"})
"""Words after which the preposition before the last noun still applies: `between A and B`."""


def roles_exchanged(
    stored: Sequence[Token], asked: Sequence[Token], prepositions: frozenset[str], is_content: Callable[[Token], bool]
) -> bool:
    """Whether words have exchanged their prepositions: `a list to a tuple` and `a tuple to a list`, `from A to B` and
    `to A from B`. Having none counts as one."""
    before, now = (_roles(side, prepositions, is_content) for side in (stored, asked))
    changes = {(before[word], now[word]) for word in before.keys() & now.keys() if before[word] != now[word]}
    while ends := {new for _, new in changes} - {old for old, _ in changes}:
        changes = {(old, new) for old, new in changes if new not in ends}
    return bool(changes)  # what remains is a cycle


def _roles(
    tokens: Sequence[Token], prepositions: frozenset[str], is_content: Callable[[Token], bool]
) -> dict[str, str]:
    """Root of a content word → the preposition of its phrase; empty if there is none."""
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
