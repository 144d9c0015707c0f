"""Recognises phrases that have moved to another position in the other question without a change of meaning: `For EECS
280, who …?`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from gateway.cache.verifier.align import Gap
from gateway.cache.verifier.text import Token

_ENDING = re.compile(r"[aeos]{1,2}$")
_TIMES = frozenset({"last", "next", "this"})
"""Words that begin a phrase of time without a preposition, such as `next semester`."""

_PHRASE = 2
"""Minimum words of a phrase that may move without its preposition."""
_OF = frozenset({"of", "by"})
"""English prepositions of phrases that can also be said in the opposite order without the preposition, as `the gender
of Ann` and `Ann's gender`."""
_LONGEST_OWNER = 6
"""Maximum words of the phrase after one of `_OF`."""


@lru_cache(maxsize=16384)
def root(form: str) -> str:
    """The root of a word: `roja` and `rojo` have the same root."""
    return _ENDING.sub("", form) if len(form) > 3 else form


def carried(
    gaps: Sequence[Gap],
    moved: frozenset[str],
    forms: tuple[tuple[str, ...], tuple[str, ...]],
    prepositions: frozenset[str],
) -> bool:
    """Whether whole phrases moved, each with its preposition, as in `from A to B` and `to B from A`. False for `from B
    to A`.

    `gaps`: the positions at which the texts differ. `moved`: roots of the words that are in gaps of both texts.
    `forms`: words of both texts.
    """
    left, right = (sorted(_runs(side, moved)) for side in zip(*((gap.stored, gap.asked) for gap in gaps), strict=True))
    if left != right:
        return False
    return all(run[0] in prepositions or (run[0] in _TIMES and len(run) > 1) for run in left) or (
        len(left) == 1 and _rotated(left[0], forms, prepositions)
    )


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
    """Whether both texts consist of `run` and a phrase that begins with a preposition, in opposite order. Example: "how
    many days in May", "in May how many days"."""
    size = len(run)
    return any(
        first[:size] == run and last[-size:] == run and last[0] in prepositions for first, last in (forms, forms[::-1])
    )


def fronted(gaps: Sequence[Gap], moved: frozenset[str], forms: tuple[tuple[str, ...], tuple[str, ...]]) -> bool:
    """Whether only one phrase moved, from one end of the sentence to the other: `Next semester, who teaches this?`

    The phrase must have at least two words. `moved`: roots of the words that are at differing positions in both texts.
    """
    return any(
        len(run) >= _PHRASE and moved <= {root(form) for form in run} and all(_at_end(run, side) for side in forms)
        for run in (tuple(token.form for token in gap.stored) for gap in gaps)
    )


def _at_end(run: tuple[str, ...], forms: tuple[str, ...]) -> bool:
    return run in (forms[: len(run)], forms[-len(run) :])


def owned(forms: tuple[tuple[str, ...], tuple[str, ...]], function: frozenset[str]) -> bool:
    """Whether the texts have the same words in the same order after the possessive form is unified. `function`
    words are ignored.

    The verifier reads `Ann's gender` as `the Ann gender`. So `the gender of Ann` in one text is changed to `the Ann
    gender`.
    """
    roots = [[root(form) for form in side if form in _OF or form not in function] for side in forms]
    common = frozenset(roots[0]) & frozenset(roots[1]) - _OF
    return any(
        _only(turned, common) == _only(other, common) for one, other in (roots, roots[::-1]) for turned in _turned(one)
    )


def _turned(roots: list[str]) -> Iterator[list[str]]:
    """Yield variants of `roots` with another word order. In each variant, one or two words before a preposition in
    `_OF` are moved behind the phrase after the preposition: `gender of Ann` → `Ann gender`. The preposition is
    removed."""
    for place in (place for place, word in enumerate(roots) if word in _OF):
        for start in range(max(0, place - 2), place):
            for end in range(place + 2, min(place + 2 + _LONGEST_OWNER, len(roots) + 1)):
                yield [*roots[:start], *roots[place + 1 : end], *roots[start:place], *roots[end:]]


def _only(roots: list[str], common: frozenset[str]) -> list[str]:
    return [each for each in roots if each in common]


_KINDS = frozenset({"kind", "kinds", "type", "types", "sort", "sorts", "tipo", "tipos"})
"""Words that add nothing to the noun after `of`."""
_AND_OR = frozenset({"and", "or", "y", "e", "ou"})
"""Words that join two nouns with one preposition: in `between A and B`, the preposition `between` also applies to B."""


def roles_exchanged(
    stored: Sequence[Token], asked: Sequence[Token], prepositions: frozenset[str], is_content: Callable[[Token], bool]
) -> bool:
    """Whether words have exchanged their prepositions, as in `a list to a tuple` and `a tuple to a list`. A missing
    preposition counts as an empty one."""
    before, now = (_roles(side, prepositions, is_content) for side in (stored, asked))
    changes = {(before[word], now[word]) for word in before.keys() & now.keys() if before[word] != now[word]}
    while ends := {new for _, new in changes} - {old for old, _ in changes}:
        changes = {(old, new) for old, new in changes if new not in ends}
    return bool(changes)  # the changes that are left form a cycle


def _roles(
    tokens: Sequence[Token], prepositions: frozenset[str], is_content: Callable[[Token], bool]
) -> dict[str, str]:
    """Root of a content word → preposition of its phrase. The preposition is empty if the phrase has none."""
    roles: dict[str, str] = {}
    role = last = ""
    before = ""
    for token in tokens:
        if before in _KINDS and token.form in ("of", "de"):
            role = last  # `a kind of cheese` has the role of `cheese`
        elif token.form in prepositions:
            role = token.form
        elif token.form in _AND_OR:
            role = last
        elif is_content(token):
            roles.setdefault(root(token.form), role)
            role, last = "", role
        before = token.form
    return roles
