"""Classifies the differences between two questions. A difference is harmless, or it is a sign that the answers
differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gateway.cache.verifier.align import Gap, align, unmatched
from gateway.cache.verifier.lexicon import Lexicon, Words
from gateway.cache.verifier.parties import parties_exchanged
from gateway.cache.verifier.phrases import carried, fronted, owned, roles_exchanged, root
from gateway.cache.verifier.text import Reading, Token
from gateway.cache.verifier.typos import same_word

_SHORT_REPLY = 2
"""Maximum words of a short reply. A negation in a short reply is significant. In a longer text, it may belong to a
phrase such as `if you don't mind`."""
_WHETHER = frozenset({"is", "are", "do", "does", "has", "have", "was", "were", "did"})
"""Words that begin a yes/no question. A text that begins with one of them and has no question word is a yes/no
question: `is the lamp on`, unlike `lamp on please`."""
_BE = frozenset({*("is", "are", "was", "were"), *("es", "son", "fue", "fueron"), *("sao", "foi", "foram")})
"""Forms of `be`. A statement and a question have them at different positions."""
_HOW = frozenset({"how", "what"})
"""Question words that have the same meaning, as in `How do I …` and `What is the way to …`."""

SIGNS = (
    *("numbers", "number", "symbols", "symbol", "names", "name", "quoted"),
    *("opposite", "roles", "negation", "questions", "question", "tense", "order", "sentence"),
)
"""Signs: reasons why the answers may differ. A sign in the plural, such as `names`, means that each text has a name of
its own. A sign in the singular, such as `name`, means that one text has a name that the other text does not have."""
_FATAL = frozenset({"numbers", "symbols", "quoted", "names", "opposite", "roles", "questions"})
"""Signs that always refuse a hit, even if the rest of the question is paraphrased: Lisbon is not Porto, off is not on,
where is not when."""
_PHRASED = frozenset({"question", "tense", "sentence"})
"""Signs that also occur between two questions that are paraphrases of each other."""
_REORDERED = 0.5
"""Limit for the summed rarity of the words that only one text has. If the sum reaches the limit, the sentence counts as
paraphrased, and a changed word order is no sign."""
_EDIT = 2
"""Maximum words of a replacement that counts as an edit and not as a paraphrase."""


@dataclass(slots=True)
class Comparison:
    conflict: str = ""
    """The reason why the answers must differ; empty if no such reason was found."""
    same: bool = False
    """Whether every difference is harmless."""
    gaps: list[Gap] = field(default_factory=list)
    matched: int = 0
    """Number of content words that both texts have in the same order."""
    spots: tuple[tuple[int, int], ...] = ()
    """For each gap with content words: (number of content words in the stored text, number in the new text). Words that
    only moved to another position do not count."""
    moved: frozenset[str] = frozenset()
    """Roots of the words that occur in gaps of both texts. These words have moved."""
    signs: frozenset[str] = frozenset()
    """The members of `SIGNS` that were found."""
    unmatched: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    """For each text, the words in its gaps whose stem does not occur in the gaps of the other text."""
    interchangeable: bool = False
    """Whether each text has a single word in `unmatched`, and the two words were seen to replace each other in
    questions with the same answer."""

    @property
    def alone(self) -> bool:
        """Whether the texts differ at only one position. Such a difference is an edit and not a paraphrase."""
        return len(self.gaps) == 1

    @property
    def replaced(self) -> bool:
        """Whether the texts differ at only one position, and content words are replaced by other words there."""
        if self.interchangeable or not self.alone or not (self.gaps[0].stored and self.gaps[0].asked):
            return False
        return (min(self.spots[0]) > 0 or max(self.spots[0]) == 1) if self.spots else bool(self.moved)

    @property
    def exchanged(self) -> bool:
        """Whether the texts differ by one replacement that has at most two words, or that is after the first
        sentence. A later sentence may ask for a format of the answer.

        Such a replacement nearly always makes a different question. A longer replacement may be a paraphrase.
        """
        if not self.replaced:
            return False
        sides = self.gaps[0].stored, self.gaps[0].asked
        return max(map(len, sides)) <= _EDIT or any(token.sentence for side in sides for token in side)


class Comparer:
    """Compares two texts in the same language by rules. A `Reading` is the parsed form of a text. The object has no
    state."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def lexicon(self, stored: Reading, asked: Reading) -> Lexicon:
        return self._words.lexicons[stored.language or asked.language or "en"]

    def compare(self, stored: Reading, asked: Reading) -> Comparison:
        if stored.beyond != asked.beyond:
            return Comparison("characters")
        if stored.payload != asked.payload:
            return Comparison("payload")
        if stored.language and asked.language and stored.language != asked.language:
            return Comparison("language")
        lexicon = self.lexicon(stored, asked)
        aligned = align(stored, asked)
        if aligned is None:
            return Comparison("length")
        gaps, pairs = aligned
        result = Comparison(gaps=gaps)
        if any(_accents_differ(stored.tokens[i], asked.tokens[j]) for i, j in pairs):
            result.conflict = "accent"
            return result
        rearranged = stored.forms != asked.forms and sorted(stored.forms) == sorted(asked.forms)
        if rearranged and not self._only_moved(gaps, stored, asked, lexicon):
            result.conflict = "order"
            return result
        settled = self._settle(gaps, stored, asked, lexicon)
        gaps[:] = [gap for gap in gaps if gap.stored or gap.asked]
        result.matched = sum(self.is_content(stored.tokens[i], lexicon) for i, _ in pairs)
        if stored.forms != asked.forms and not gaps and not (result.matched or settled):
            result.conflict = "courtesy"  # without the polite phrases, nothing is left, as in a greeting and a farewell
            return result
        if gaps:
            result.moved = _moved(gaps)
            result.unmatched = unmatched(gaps)
            result.interchangeable = _exchanges(result.unmatched, lexicon.interchangeable)
            result.signs = self._signs(result, stored, asked, lexicon)
            result.spots = self._spots(result, lexicon)
        known = bool(stored.language or asked.language)
        result.same = not result.signs and (not gaps or (known and all(_harmless(gap, lexicon) for gap in gaps)))
        if not result.same:
            result.conflict = self._conflict(result, stored.language or asked.language or "en")
        return result

    def _only_moved(self, gaps: list[Gap], stored: Reading, asked: Reading, lexicon: Lexicon) -> bool:
        """Whether two texts with the same words in another order have the same meaning. This holds if whole phrases
        moved. It also holds if only question words or forms of `be` moved, as in `where the station is`."""
        forms = stored.forms, asked.forms
        if carried(gaps, _moved(gaps), forms, lexicon.prepositions) or fronted(gaps, _moved(gaps), forms):
            return True
        return all(token.form in _BE or token.form in lexicon.questions for gap in gaps for token in gap.stored)

    def _conflict(self, found: Comparison, language: str) -> str:
        """The reason why the two questions must have different answers; empty if there is none."""
        if found.alone or not found.spots:
            fatal = found.signs
        elif len(found.spots) == 1:
            fatal = found.signs - _PHRASED
        else:
            fatal = found.signs & _FATAL
        if "order" in fatal:
            rarity = self._words.vocabulary.rarity
            if sum(rarity(form, language) for side in found.unmatched for form in side) >= _REORDERED:
                fatal -= {"order"}
        return min(fatal, key=SIGNS.index, default="")

    def _spots(self, found: Comparison, lexicon: Lexicon) -> tuple[tuple[int, int], ...]:
        def count(tokens: list[Token]) -> int:
            return sum(root(token.form) not in found.moved and self.is_content(token, lexicon) for token in tokens)

        counts = [(count(gap.stored), count(gap.asked)) for gap in found.gaps]
        return tuple(count for count in counts if any(count))

    def is_content(self, token: Token, lexicon: Lexicon) -> bool:
        return token.kind != "word" or not (
            token.form in lexicon.function or token.form in lexicon.modals or token.form in lexicon.questions
        )

    # -- harmless differences --------------------------------------------------------------------------------------

    def _settle(self, gaps: list[Gap], stored: Reading, asked: Reading, lexicon: Lexicon) -> int:
        """Remove harmless differences from the gaps: different spellings of a word, and polite phrases. Returns the
        number of different spellings.
        """
        language = stored.language or asked.language
        settled = sum(self._settle_spelling(gap, language, lexicon) for gap in gaps)
        if language in ("es", "pt"):
            _settle_register(gaps, stored, asked)
        for gap in gaps:
            self._settle_courtesy(gap, lexicon)
        return settled

    def _settle_spelling(self, gap: Gap, language: str, lexicon: Lexicon) -> int:
        """Remove pairs of words that count as the same word, and return their number.

        Such pairs are misspellings, singular and plural, and the digit 1 with its word.
        """
        settled = 0
        for left in list(gap.stored):
            for right in gap.asked:
                one = {left.form, right.form}
                if same_word(left, right, self._words.vocabulary, language) or (
                    "1" in one and one & (lexicon.one | {"un", "una", "um", "uma"} & lexicon.function)
                ):
                    gap.stored.remove(left)
                    gap.asked.remove(right)
                    settled += 1
                    break
        return settled

    def _settle_courtesy(self, gap: Gap, lexicon: Lexicon) -> None:
        """Remove polite phrases before or after the question. Phrases with question words are removed only if both
        texts ask the same kind of question.
        """
        if not (gap.first or gap.last):
            return
        sides = [[token.form for token in side] for side in (gap.stored, gap.asked)]
        if any(token.kind != "word" or token.quoted for token in gap.stored + gap.asked):
            return
        if len(set(map(root, sides[0] + sides[1]))) < len(set(sides[0] + sides[1])):
            return  # `un amigo` and `una amiga`
        kinds = [{lexicon.questions.get(form) for form in side} for side in sides]
        if kinds[0] - {None, "what"} != kinds[1] - {None, "what"}:
            return
        if any(len(side) <= _SHORT_REPLY and lexicon.negations.intersection(side) for side in sides):
            return
        if all(self._words.courtesy.polite(side) for side in sides):
            gap.stored.clear()
            gap.asked.clear()

    # -- signs that the answers differ -----------------------------------------------------------------------------

    def _signs(self, compared: Comparison, stored: Reading, asked: Reading, lexicon: Lexicon) -> frozenset[str]:
        left = [token for gap in compared.gaps for token in gap.stored]
        right = [token for gap in compared.gaps for token in gap.asked]
        moved = compared.moved
        only = [[token for token in side if root(token.form) not in moved] for side in (left, right)]
        found = set()
        kinds = [{_kind(token) for token in side} for side in only]
        for name in ("number", "symbol", "name"):
            if any(name in side for side in kinds):
                found.add(f"{name}s" if all(name in side for side in kinds) else name)
        if any(token.quoted for side in only for token in side):
            found.add("quoted")
        if _count(left, lexicon.negations) != _count(right, lexicon.negations):
            found.add("negation")
        if _opposites(compared.unmatched, lexicon) or _exchanges(compared.unmatched, lexicon.contrasts):
            found.add("opposite")
        if roles_exchanged(
            stored.tokens, asked.tokens, lexicon.prepositions, lambda token: self.is_content(token, lexicon)
        ) or parties_exchanged(stored.forms, asked.forms, lexicon):
            found.add("roles")
        found |= _question_signs(only, stored, asked, lexicon)
        if len({any(token.form in lexicon.past for token in side) for side in only}) == 2:
            found.add("tense")
        forms = stored.forms, asked.forms
        if (
            any(root(token.form) in moved and self.is_content(token, lexicon) for token in left)
            and not carried(compared.gaps, moved, forms, lexicon.prepositions)
            and not (fronted(compared.gaps, moved, forms) or owned(forms, lexicon.function))
        ):
            found.add("order")
        if self._sentence_added(only[0], stored, lexicon) or self._sentence_added(only[1], asked, lexicon):
            found.add("sentence")
        return frozenset(found)

    def _sentence_added(self, unmatched: list[Token], reading: Reading, lexicon: Lexicon) -> bool:
        """Whether `reading` has a whole sentence that the other text lacks, such as `Answer in French.` `unmatched`:
        tokens that only this text has."""
        if not reading.tokens or not reading.tokens[-1].sentence:
            return False
        missing = Counter(t.sentence for t in unmatched if self.is_content(t, lexicon))
        present = Counter(t.sentence for t in reading.tokens if self.is_content(t, lexicon))
        return any(count == present[sentence] for sentence, count in missing.items())


def _harmless(gap: Gap, lexicon: Lexicon) -> bool:
    return all(
        (token.form == "/" and token.kind == "sign")
        or (token.kind == "word" and not token.quoted and not token.name and token.form in lexicon.function)
        for token in gap.stored + gap.asked
    )


def _kind(token: Token) -> str:
    """The kind of a token: number, symbol or name. Empty for a common word."""
    if token.kind == "number":
        return "number"
    if token.kind != "word" and token.form != "/":
        return "symbol"
    return "name" if token.name else ""


def _questions(tokens: list[Token], lexicon: Lexicon) -> set[str]:
    return {lexicon.questions[token.form] for token in tokens if token.form in lexicon.questions} - _HOW


def _moved(gaps: list[Gap]) -> frozenset[str]:
    stored = {root(token.form) for gap in gaps for token in gap.stored}
    return frozenset(stored & {root(token.form) for gap in gaps for token in gap.asked})


def _question_signs(only: list[list[Token]], stored: Reading, asked: Reading, lexicon: Lexicon) -> set[str]:
    """The signs, found from question words, that the answers differ.

    `questions`: the texts ask for different things, such as where and when. `question`: only one of them asks for
    something.
    """
    left, right = (_questions(side, lexicon) for side in only)
    if left and right and not left & right:
        return {"questions"}
    return {"question"} if left != right or _whether(stored, asked, lexicon) else set()


def _whether(stored: Reading, asked: Reading, lexicon: Lexicon) -> bool:
    """Whether one of the two texts is a yes/no question and the other is not a question at all."""
    if _WHETHER.isdisjoint(stored.forms[:1]) == _WHETHER.isdisjoint(asked.forms[:1]):
        return False
    return lexicon.questions.keys().isdisjoint(stored.forms + asked.forms)


def _count(tokens: list[Token], words: frozenset[str]) -> int:
    return sum(token.form in words for token in tokens)


def _opposites(unmatched: tuple[list[str], list[str]], lexicon: Lexicon) -> bool:
    """Whether one text has the opposite of a word of the other, such as `on` and `off`. The rest of the texts does not
    matter."""
    return any(opposite in unmatched[1] for form in unmatched[0] for opposite in lexicon.opposites.get(form, ()))


def _exchanges(unmatched: tuple[list[str], list[str]], pairs: frozenset[tuple[str, str]]) -> bool:
    """Whether each side of `unmatched` is a single word, and the two words form one of `pairs`."""
    left, right = unmatched
    return len(left) == len(right) == 1 and (min(left + right), max(left + right)) in pairs


def _accents_differ(left: Token, right: Token) -> bool:
    """Whether the accents of two equal words contradict each other. `avó` and `avô` are two different words; `avo`,
    without an accent, may mean either."""
    if left.raw == right.raw or left.kind != "word":
        return False
    if left.quoted and right.quoted:
        return True
    return not left.raw.isascii() and not right.raw.isascii() and len(left.raw) == len(right.raw)


def _settle_register(gaps: list[Gap], stored: Reading, asked: Reading) -> None:
    """Remove verbs at the beginning that differ only in formality, such as the imperatives `Redacta` and `redacte`."""
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
