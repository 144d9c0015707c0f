"""Compares which party of an action two questions ask for: the one who acts (`Who killed John?`) or the one acted
upon (`Who did John kill?`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gateway.cache.verifier.lexicon import Lexicon

_WHO = frozenset({"who", "whom", "what", "which"})
_QUIEN = frozenset({"quien", "quienes", "quem"})
"""Spanish and Portuguese `who`. As in English, the party acted upon is known by the word order, or by `a` before it."""
_WITH_NOUN = frozenset({"what", "which"})
"""Question words that a noun may follow, as in `which animals eat lions`."""
_DO = frozenset({"do", "does", "did"})
_DO_BY = _DO | {"by"}
_BE = frozenset({"is", "are", "was", "were", "been", "got"})
_HAVE = frozenset({"have", "has", "had"})
_AUXILIARIES = _DO | _BE | _HAVE
_OBJECTS = {"he": "him", "she": "her", "they": "them", "we": "us", "i": "me"}
_STATES = frozenset({"mean", "cost"})
"""Verbs whose subject and object are often exchanged by mistake, as in `what means serendipity`."""
_AUXILIARY_WITHIN = 3
"""Maximum words after the question word that are searched for an auxiliary verb."""
_ENDINGS = ("ing", "ed", "es", "s", "e")

Forms = tuple[str, ...]


class _Part(NamedTuple):
    """The party of an action that a question word stands for in one clause."""

    acts: bool
    verb: str
    others: frozenset[str]
    """The words for the other party, and words that may belong to this party."""


def parties_exchanged(stored: Forms, asked: Forms, lexicon: Lexicon) -> bool:
    """Whether the two questions ask for opposite parties of an action."""
    words = frozenset(stored), frozenset(asked)
    if all(map(_WHO.intersection, words)) and not _DO_BY.isdisjoint(words[0] | words[1]):
        parts = _parts
    elif all(map(_QUIEN.intersection, words)):
        parts = _parts_of_quien
    else:
        return False
    left, right = (list(parts(side, lexicon.prepositions)) for side in (stored, asked))
    return any(
        one.acts != other.acts
        and _infinitive(one.verb, lexicon.irregular) == _infinitive(other.verb, lexicon.irregular)
        and one.verb not in lexicon.function | lexicon.modals
        and not (one.others & other.others <= lexicon.function)
        for one in left
        for other in right
    )


def _infinitive(verb: str, irregular: Mapping[str, str]) -> str:
    """The part of `verb` that all its forms have in common: `stop` for `stopped`."""
    verb = irregular.get(verb, verb)
    ending = next((each for each in _ENDINGS if verb.endswith(each) and len(verb) > len(each) + 1), "")
    verb = verb.removesuffix(ending)
    if len(verb) > 2 and verb[-1] == verb[-2]:
        verb = verb[:-1]
    return verb[:-1] + "i" if verb.endswith("y") else verb


def _parts(forms: Forms, prepositions: frozenset[str]) -> Iterator[_Part]:
    for place in (place for place, form in enumerate(forms) if form in _WHO):
        noun = forms[place] in _WITH_NOUN
        before, rest = forms[max(0, place - 1) : place], forms[place + 1 :]
        auxiliary = next((at for at, form in enumerate(rest[:_AUXILIARY_WITHIN]) if form in _AUXILIARIES), -1)
        after = rest[auxiliary + 1 :]
        if auxiliary < 0:
            found = [(True, at, after[at + 1 :]) for at in range(forms[place] == "which", 1 + noun)]
        elif rest[auxiliary] in _BE:
            found = list(_passive(after, before, prepositions))
        elif rest[auxiliary] in _HAVE or (noun and not prepositions.isdisjoint(before + after[-1:])):
            continue  # `which films did Ann act in` asks for a place, not for a party
        else:
            found = [(False, at, after[:at]) for at in range(1, len(after))]
        for acts, at, others in found:
            if at < len(after) and after[at] not in _STATES:
                yield _Part(acts, after[at], frozenset(_OBJECTS.get(form, form) for form in others))


def _parts_of_quien(forms: Forms, prepositions: frozenset[str]) -> Iterator[_Part]:
    for place in (place for place, form in enumerate(forms) if form in _QUIEN):
        rest = forms[place + 1 :]
        if forms[max(0, place - 1) : place] == ("a",):
            yield from (_Part(False, verb, frozenset(rest) - {verb}) for verb in rest)
        elif rest and rest[0] not in prepositions:
            yield _Part(True, rest[0], frozenset(rest[1:]))
            yield from (_Part(False, rest[at], frozenset(rest[:at])) for at in range(1, len(rest)))


def _passive(after: Forms, before: Forms, prepositions: frozenset[str]) -> Iterator[tuple[bool, int, Forms]]:
    """Read a clause in the passive voice. `after`: the words after a form of `be`. `before`: the word before the
    question word; empty if there is none.

    Yields three values: whether the question word stands for the one who acts, the position of the verb, and the other
    party.
    """
    if before == ("by",):
        yield from ((True, at, after[:at]) for at in range(1, len(after)))
    elif "by" in after[1:]:
        at = after.index("by", 1) - 1
        if at and (len(after) == at + 2 or after[at + 2] in prepositions):
            yield True, at, after[:at]
        else:
            yield False, at, after[at + 2 :]
