"""How two readings differ: harmless gaps, and the conflicts that no similarity may outvote."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from gateway.cache.align import Gap, align
from gateway.cache.text import Reading, Token
from gateway.cache.words import Lexicon, Words

_CLUSTER = re.compile(r"[^aeiou]{3}")
"""Where a vowel has dropped out."""
_HOW = frozenset({"how", "what"})


@dataclass(slots=True)
class Comparison:
    conflict: str = ""
    """Why the answer must differ; empty when nothing says so."""
    same: bool = False
    """Every difference is harmless."""
    gaps: list[Gap] = field(default_factory=list)
    matched: int = 0
    """Content words that both have, in order."""
    spots: tuple[tuple[int, int], ...] = ()
    """Content words of either side in each gap that has any."""

    qualified: bool = False
    """One side only adds a phrase that a preposition leads in, as in `to a child`."""

    @property
    def minimal(self) -> bool:
        """One word stands for one other, all else being equal: almost always another question."""
        return self.spots == ((1, 1),)


class Comparer:
    """Rules on two readings of one language. Pure."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def lexicon(self, stored: Reading, asked: Reading) -> Lexicon:
        return self._words.lexicons[stored.language or asked.language or "en"]

    def compare(self, stored: Reading, asked: Reading) -> Comparison:
        if stored.payload != asked.payload:
            return Comparison("payload")
        if stored.language and asked.language and stored.language != asked.language:
            return Comparison("language")
        if stored.forms != asked.forms and sorted(stored.forms) == sorted(asked.forms):
            return Comparison("order")
        lexicon = self.lexicon(stored, asked)
        aligned = align(stored, asked)
        if aligned is None:
            return Comparison("length")
        gaps, pairs = aligned
        result = Comparison(gaps=gaps)
        if any(_accents_differ(stored.tokens[i], asked.tokens[j]) for i, j in pairs):
            result.conflict = "accent"
            return result
        misspelt = self._settle_typos(gaps)
        if (stored.language or asked.language) in ("es", "pt"):
            _settle_register(gaps, stored, asked)
        self._settle_courtesy(gaps, lexicon)
        gaps[:] = [gap for gap in gaps if gap.stored or gap.asked]
        result.matched = sum(self.is_content(stored.tokens[i], lexicon) for i, _ in pairs)
        if stored.forms != asked.forms and not gaps and not (result.matched or misspelt):
            result.conflict = "courtesy"  # nothing is left to ask, as in a greeting and a farewell
            return result
        if gaps:
            result.conflict = self._conflict(gaps, stored, asked, lexicon)
        if not result.conflict:
            known = bool(stored.language or asked.language)
            result.same = not gaps or (known and all(self._harmless(gap, lexicon) for gap in gaps))
            result.spots = self._spots(gaps, lexicon)
            result.qualified = any(self._qualifies(gap, lexicon) for gap in gaps)
        return result

    def _qualifies(self, gap: Gap, lexicon: Lexicon) -> bool:
        if gap.stored and gap.asked:
            return False
        added = gap.stored + gap.asked
        return added[0].form in self._words.particles | self._words.mild and any(
            self.is_content(token, lexicon) for token in added
        )

    def _spots(self, gaps: list[Gap], lexicon: Lexicon) -> tuple[tuple[int, int], ...]:
        counts = [
            (
                sum(self.is_content(token, lexicon) for token in gap.stored),
                sum(self.is_content(token, lexicon) for token in gap.asked),
            )
            for gap in gaps
        ]
        return tuple(count for count in counts if any(count))

    def is_content(self, token: Token, lexicon: Lexicon) -> bool:
        return token.kind != "word" or not (
            token.form in lexicon.function
            or token.form in lexicon.modals
            or token.form in lexicon.questions
            or token.form in self._words.mild
        )

    # -- what is harmless ------------------------------------------------------------------------------------------

    def _settle_typos(self, gaps: list[Gap]) -> int:
        """Take pairs that are one word misspelt, or in another number, out of their gaps; how many."""
        settled = 0
        for gap in gaps:
            for left in list(gap.stored):
                for right in list(gap.asked):
                    if self.same_word(left, right):
                        gap.stored.remove(left)
                        gap.asked.remove(right)
                        settled += 1
                        break
        return settled

    def same_word(self, left: Token, right: Token) -> bool:
        if left.kind != "word" or right.kind != "word" or left.quoted or right.quoted:
            return False
        if left.name or right.name:
            return False
        return _plural(left.form, right.form) or self._typo(left.form, right.form)

    def _typo(self, left: str, right: str) -> bool:
        """One slip apart, and at most one of them a word that the vocabulary knows."""
        if min(len(left), len(right)) < 4 or left[0] != right[0]:
            return False
        known = (left in self._words.vocabulary) + (right in self._words.vocabulary)
        slip = _slip(left, right)
        if not slip or known == 2 or right in self._words.opposites.get(left, ()):
            return False
        if known == 1 or slip in ("swap", "double"):
            return True
        shorter = min(left, right, key=len)
        return slip == "drop" and (len(shorter) > 6 or bool(_CLUSTER.search(shorter)))

    def _settle_courtesy(self, gaps: list[Gap], lexicon: Lexicon) -> None:
        for gap in gaps:
            if self._polite(gap, lexicon):
                kinds = [{lexicon.questions.get(token.form) for token in side} for side in (gap.stored, gap.asked)]
                if kinds[0] - {None, "what"} == kinds[1] - {None, "what"}:
                    gap.stored.clear()
                    gap.asked.clear()

    def _polite(self, gap: Gap, lexicon: Lexicon) -> bool:
        """A few words before the question, or thanks after it."""
        words = gap.stored + gap.asked
        if not (gap.first or gap.last) or not all(token.form in lexicon.courtesy for token in words):
            return False
        return gap.first or any(token.form in self._words.thanks for token in words)

    def _harmless(self, gap: Gap, lexicon: Lexicon) -> bool:
        one_sided = not gap.stored or not gap.asked
        for token in gap.stored + gap.asked:
            if token.form == "/" and token.kind == "sign":
                continue
            if token.kind != "word" or token.quoted or token.name:
                return False
            if token.form in lexicon.function:
                continue
            if not one_sided and token.form in self._words.mild:
                continue
            return False
        return True

    # -- what no similarity may outvote ----------------------------------------------------------------------------

    def _conflict(self, gaps: list[Gap], stored: Reading, asked: Reading, lexicon: Lexicon) -> str:
        left = [token for gap in gaps for token in gap.stored]
        right = [token for gap in gaps for token in gap.asked]
        left_forms, right_forms = Counter(t.form for t in left), Counter(t.form for t in right)
        moved = left_forms & right_forms
        only_left = [token for token in left if token.form not in moved]
        only_right = [token for token in right if token.form not in moved]
        for name, test in (
            ("number", lambda t: t.kind == "number"),
            ("symbol", lambda t: t.kind in ("ident", "sign") and t.form != "/"),
            ("name", lambda t: t.name),
            ("quoted", lambda t: t.quoted),
            ("closed", lambda t: t.form in self._words.closed),
        ):
            if any(test(token) for token in only_left + only_right):
                return name
        if _count(stored, lexicon.negations) != _count(asked, lexicon.negations):
            return "negation"
        if self._questions_differ(only_left, only_right, lexicon):
            return "question"
        if self._opposed(only_left, only_right):
            return "opposite"
        if self._swapped(stored, asked, moved):
            return "order"
        if self._sentence_added(only_left, stored, lexicon) or self._sentence_added(only_right, asked, lexicon):
            return "sentence"
        return ""

    def _sentence_added(self, unmatched: list[Token], reading: Reading, lexicon: Lexicon) -> bool:
        """A whole sentence that the other side lacks: `Answer in French.`"""
        if not reading.tokens or not reading.tokens[-1].sentence:
            return False
        missing = Counter(t.sentence for t in unmatched if self.is_content(t, lexicon))
        present = Counter(t.sentence for t in reading.tokens if self.is_content(t, lexicon))
        return any(count == present[sentence] for sentence, count in missing.items())

    @staticmethod
    def _questions_differ(left: list[Token], right: list[Token], lexicon: Lexicon) -> bool:
        kinds = [{lexicon.questions[t.form] for t in side if t.form in lexicon.questions} for side in (left, right)]
        hard = [kind - _HOW for kind in kinds]
        return hard[0] != hard[1]

    def _opposed(self, left: list[Token], right: list[Token]) -> bool:
        others = {token.form for token in right}
        return any(others & self._words.opposites.get(token.form, frozenset()) for token in left)

    def _swapped(self, stored: Reading, asked: Reading, moved: Counter[str]) -> bool:
        """Another word stands after from or to."""
        for markers in (self._words.towards, self._words.away):
            roles = [
                {reading.forms[place + 1] for place in range(len(reading.forms) - 1) if reading.forms[place] in markers}
                for reading in (stored, asked)
            ]
            if any(form in stored.forms and form in asked.forms for form in roles[0] ^ roles[1] if form in moved):
                return True
        return False


def _count(reading: Reading, words: frozenset[str]) -> int:
    return sum(form in words for form in reading.forms)


def _accents_differ(left: Token, right: Token) -> bool:
    """`avó` and `avô` are two words; `avo` may be either."""
    if left.raw == right.raw or left.kind != "word":
        return False
    if left.quoted and right.quoted:
        return True
    return not left.raw.isascii() and not right.raw.isascii() and len(left.raw) == len(right.raw)


def _settle_register(gaps: list[Gap], stored: Reading, asked: Reading) -> None:
    """`Redacta` and `redacte` ask for one thing: the imperative that a text begins with, to a friend or a stranger."""
    if not gaps or not (stored.tokens and asked.tokens):
        return
    left, right = stored.tokens[0], asked.tokens[0]
    if (
        gaps[0].stored[:1] == [left]
        and gaps[0].asked[:1] == [right]
        and min(len(left.form), len(right.form)) > 4
        and left.form[:-1] == right.form[:-1]
        and {left.form[-1], right.form[-1]} == {"a", "e"}
    ):
        del gaps[0].stored[0], gaps[0].asked[0]


def _plural(left: str, right: str) -> bool:
    shorter, longer = sorted((left, right), key=len)
    return len(shorter) > 2 and (
        longer in (shorter + "s", shorter + "es") or (shorter[-1] == "y" and longer == shorter[:-1] + "ies")
    )


def _slip(left: str, right: str) -> str:
    """`swap` (neighbours exchanged), `double` (one letter twice), `drop`, `change`; empty when further apart."""
    if left == right or abs(len(left) - len(right)) > 1:
        return ""
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    if len(left) == len(right):
        if left[start + 1 :] == right[start + 1 :]:
            return "change"
        swapped = left[start : start + 2] == right[start : start + 2][::-1] and left[start + 2 :] == right[start + 2 :]
        return "swap" if swapped else ""
    shorter, longer = sorted((left, right), key=len)
    if shorter[start:] != longer[start + 1 :]:
        return ""
    doubled = longer[start] == longer[start - 1] if start else False
    if doubled and longer[start - 1 : start + 1] in ("rr", "ll", "ss", "nn") and len(shorter) < 7:
        return "drop"
    return "double" if doubled else "drop"
