"""Parses a prompt for the verifier into canonical tokens, quotations, text to process, and the language."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from gateway.cache.verifier.characters import beyond
from gateway.cache.verifier.lexicon import LANGUAGES, Lexicon, Words
from gateway.cache.verifier.politeness import CERTAIN
from gateway.cache.verifier.vocabulary import COLUMNS

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_QUOTED = re.compile(r'(?<!")"++([^"\n]++)"+|“([^“”]++)”|«([^«»]++)»|`([^`\n]++)`|(?<![\w])\'([^\'\n]{2,}+)\'(?!\w)')
"""Matches quotations. No character is searched from more than one opening mark, so that the time is linear."""
_TOKEN = re.compile(
    r"(?P<link>(?:https?://|www\.)[^\s<>\"']+|(?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.]+|(?:[~.]?/[\w.-]+){2,})"
    r"|(?P<number>\d+(?:[.,:]\d+)*)"
    r"|(?P<ident>[^\W\d_]+(?:\+\+|\#)(?!\w)|\.?[^\W\d_]\w*(?:[._^]\w+)+|[^\W\d_]+\d\w*|_\w+|\w+_\w*)"
    r"|(?P<word>[^\W\d_]+(?:['’´][^\W\d_]+)*)"
    r"|(?P<sign>[+*/^=<>%$€£&|~@\#\\]+|(?<=\s)-(?=\d))"
)
_SPELLING = (
    (re.compile(r"(?<=\w{3})is(?=(?:e|ed|es|er|ers|ing|ation|ations)$)"), "iz"),
    (re.compile(r"(?<=\w{3})ys(?=(?:e|ed|es|ing)$)"), "yz"),
    (re.compile(r"(?<=\w{3})our(?=(?:s|ed|ing|ite|ites|al|able|ful|less|er|ers)?$)"), "or"),
    (re.compile(r"(?<=[ctb])re(?=s?$)"), "er"),
    (re.compile(r"ogue(?=s?$)"), "og"),
    (re.compile(r"(?<=[ef]en)c(?=es?$)"), "s"),
    (re.compile(r"(?<=\w{4})ll(?=(?:ed|ing|er|ers)$)"), "l"),
)
_GREETING = re.compile(r"([^:!,.?]{1,60})[:!,.]\s+(?=\S)")
_MARKS = {"es": re.compile("[¿¡ñ]"), "pt": re.compile("[ãõç]|nh|lh")}
_MARK_WEIGHT = 2.0
"""Weight of a letter that occurs in only one language, in units of Zipf frequency."""
_CLEARLY = 1.0
"""Minimum lead of a language over every other language, summed over all words. With a smaller lead, the language counts
as unknown."""
_READ_FOR_LANGUAGE = 600
"""Maximum characters of a text from which the language is determined."""
_CONTRACTED = {"n't": "not", "'m": "am", "'re": "are", "'ve": "have", "'ll": "will", "'d": "would"}
_CUT = {"ca": "can", "wo": "will", "sha": "shall"}
"""The part of a contraction before `n't` → the full word."""
_ENDING = frozenset(".?!\n")
_BEGINNING = _ENDING | frozenset(":¿¡")
"""Characters after which a sentence, or a part that is read like a sentence, begins."""
_MULTIPLIERS = (100, 1000, 1_000_000)
_JOINS = ("y", "e")
_LONGEST_QUOTE = 6
"""Maximum words of a quotation that counts as a name. A longer quotation counts as text to process."""
_HEADLINE = 4
"""Minimum number of capitalised words in a headline. Fewer capitalised words may be a single name."""
_LONGEST_LABEL = 3
"""Maximum words before a colon if these words name the topic, as in `India: …`."""


@dataclass(frozen=True, slots=True)
class Token:
    form: str
    """The canonical form of the token: in lower case, without accents, with contractions expanded, and with numbers in
    digits."""
    raw: str
    """The token as the text contains it, but in lower case."""
    kind: str
    """The kind of the token: word | number | ident | sign"""
    name: bool = False
    """Whether the token is capitalised although it is not at the beginning of a sentence."""
    quoted: bool = False
    sentence: int = 0
    """Index of the sentence that contains the token; the first sentence has index 0."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The parsed form of one text."""

    tokens: tuple[Token, ...]
    forms: tuple[str, ...]
    payload: tuple[str, ...]
    """Code, long quotations, and text to process. Two questions have the same answer only if these are equal."""
    language: str
    """en, es or pt; empty if undecided."""
    beyond: str = ""
    """Characters that are not in the tokens; see `characters.beyond`."""

    @property
    def empty(self) -> bool:
        return not self.tokens and not self.payload


@lru_cache(maxsize=16384)
def plain(word: str) -> str:
    """`word` without accents. The letter ñ is kept, because it is a separate letter."""
    if word.isascii():
        return word
    kept = word.replace("ñ", "\0")
    bare = "".join(char for char in unicodedata.normalize("NFD", kept) if not unicodedata.combining(char))
    return bare.replace("\0", "ñ")


class Reader:
    """Converts a text to a `Reading`. The object has no state."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def language(self, text: str) -> str:
        """The language of the text; empty if its words do not clearly belong to one language."""
        text = text[:_READ_FOR_LANGUAGE].lower()
        totals = [0.0] * len(COLUMNS)
        for word in re.findall(r"[^\W\d_]+", text):
            for place, zipf in enumerate(self._words.vocabulary.zipf(plain(word))):
                totals[place] += zipf
        for name, mark in _MARKS.items():
            if mark.search(text):
                totals[COLUMNS.index(name)] += _MARK_WEIGHT
        best = max(range(len(COLUMNS)), key=totals.__getitem__)
        second = max(total for place, total in enumerate(totals) if place != best)
        return COLUMNS[best] if COLUMNS[best] in LANGUAGES and totals[best] > second + _CLEARLY else ""

    def varies(self, text: str) -> bool:
        """Whether the answer to `text` depends on the time or on chance, or `text` asks for a new text (a poem, another
        joke)."""
        words, language = plain(text.lower()), self.language(text)
        return any(
            self._words.lexicons[name].varying.search(words) for name in ((language,) if language else LANGUAGES)
        )

    def read(self, text: str, language: str = "") -> Reading:
        """Parse a text. `language`: used if the language of the text itself is not clear."""
        unread = beyond(text)
        text = unicodedata.normalize("NFKC", text).replace("’", "'").strip()
        language = self.language(text) or language
        lexicon = self._words.lexicons[language or "en"]
        payload: list[str] = []

        def keep(match: re.Match[str]) -> str:
            payload.append("\n".join(line.rstrip() for line in match.group().strip().splitlines()))
            return "\n"

        text = _FENCE.sub(keep, text)
        text = self._handed_over(text, payload)
        tokens = _merge(self._tokens(text, lexicon, payload), lexicon)
        return Reading(tuple(tokens), tuple(token.form for token in tokens), tuple(payload), language, unread)

    def _tokens(self, text: str, lexicon: Lexicon, payload: list[str]) -> list[Token]:
        tokens: list[Token] = []
        end = 0
        cased = not (text.isupper() or text.islower() or text.istitle() or _titled(text, lexicon))
        for match in _QUOTED.finditer(text):
            self._plain_tokens(text[end : match.start()], lexicon, tokens, cased=cased, quoted=False)
            inner = next(group for group in match.groups() if group)
            if len(inner.split()) > _LONGEST_QUOTE:
                payload.append(" ".join(inner.split()))
            else:
                self._plain_tokens(inner, lexicon, tokens, cased=False, quoted=True)
            end = match.end()
        self._plain_tokens(text[end:], lexicon, tokens, cased=cased, quoted=False)
        return tokens

    def _plain_tokens(self, text: str, lexicon: Lexicon, into: list[Token], *, cased: bool, quoted: bool) -> None:
        last_end = 0
        sentence = into[-1].sentence if into else 0
        for match in _TOKEN.finditer(text):
            written = match.group()
            kind = match.lastgroup or "word"
            # a capital at the beginning of the text, or after a full stop or question mark, is not significant
            gap = text[last_end : match.start()]
            begins = not into or not _BEGINNING.isdisjoint(gap)
            sentence += bool(into) and not _ENDING.isdisjoint(gap)
            last_end = match.end()
            name = cased and not begins and written[:1].isupper() and written != "I"
            if kind == "word":
                self._word(written, lexicon, into, name, quoted, sentence)
            elif kind == "number":
                into.append(Token(_number(written), written, "number", False, quoted, sentence))
            else:
                form = plain(written.lower())
                into.append(Token(form, form, "sign" if kind == "sign" else "ident", name, quoted, sentence))

    def _word(self, written: str, lexicon: Lexicon, into: list[Token], name: bool, quoted: bool, sentence: int) -> None:
        raw = written.lower().replace("´", "'")
        form = plain(raw)
        if quoted:
            into.append(Token(form, raw, "word", name, True, sentence))
            return
        for part in self._parts(form, lexicon):
            if number := lexicon.numbers.get(part):
                into.append(Token(str(number), "", "number", False, False, sentence))
                continue
            bare = part.removesuffix("'s")
            canonical = lexicon.same.get(bare) or _spelling(bare)
            into.append(Token(canonical, raw if bare == form else canonical, "word", name, sentence=sentence))

    @staticmethod
    def _parts(form: str, lexicon: Lexicon) -> list[str]:
        """The words after expanding a contraction or an abbreviation: `can't` → `can not`, `whats` → `what is`, `dont`
        → `do not`."""
        if form in lexicon.short:
            return [lexicon.short[form]]
        for ending, full in _CONTRACTED.items():
            if form.endswith(ending):
                stem = form.removesuffix(ending)
                return [_CUT.get(stem, stem), full]
        for ending in ("not", "nt"):
            stem = form.removesuffix(ending)
            full = _CUT.get(stem, stem)
            if stem != form and (full in lexicon.function or full in lexicon.past or full in lexicon.modals):
                return [full, "not"]
        stem = form.removesuffix("s").removesuffix("'")
        known = form in lexicon.questions or form in lexicon.function or stem == form
        if not known and (stem in lexicon.questions or (form.endswith("'s") and stem in lexicon.function)):
            return [stem, "is"]
        return [form]

    def _courteous(self, text: str) -> bool:
        words = [plain(word) for word in re.findall(r"[^\W\d_]+", text.lower())]
        return bool(words) and self._words.courtesy.polite(words, CERTAIN)

    def _handed_over(self, text: str, payload: list[str]) -> str:
        """The instruction in `text`. The rest of `text`, below the instruction or after a colon, is text to process
        and is appended to `payload`.
        """
        lines = [line for line in map(str.strip, text.splitlines()) if line]
        while len(lines) > 1 and self._courteous(lines[0]):
            del lines[0]
        while len(lines) > 1 and self._courteous(lines[-1]):
            del lines[-1]
        if not lines:
            return text
        if len(lines) > 1:
            payload.append("\n".join(" ".join(line.split()) for line in lines[1:]))
        head = lines[0]
        while (greeting := _GREETING.match(head)) and self._courteous(greeting[1]):
            head = head[greeting.end() :]
        before, colon, after = head.rpartition(": ")
        if not colon or len(after.split()) <= 2:
            return head
        payload.append(" ".join(after.lower().split()).rstrip(" .?!"))
        if len(before.split()) <= _LONGEST_LABEL:
            payload.append(" ".join(before.lower().split()))
        return before


def _titled(text: str, lexicon: Lexicon) -> bool:
    """Whether `text` is written like a headline: every longer word begins with a capital, except function words."""
    words = [word for word in re.findall(r"[^\W\d_]{3,}", text)[1:] if plain(word.lower()) not in lexicon.function]
    return len(words) >= _HEADLINE and all(word[0].isupper() for word in words)


def _merge(tokens: list[Token], lexicon: Lexicon) -> list[Token]:
    """Join neighbouring words that mean one word or number: `por que` → `porque`; `thirty five` → 35."""
    merged: list[Token] = []
    for token in tokens:
        last = merged[-1] if merged else None
        if last and last.form == "por" and token.form == "que":
            merged[-1] = Token("porque", "porque", "word", sentence=token.sentence)
            continue
        value = _spelt_out(token, lexicon)
        if (
            value
            and last
            and last.form in _JOINS
            and len(merged) > 1
            and _spelt_out(merged[-2], lexicon)
            and value < 10
        ):
            del merged[-1]
            last = merged[-1]
        before = _spelt_out(last, lexicon) if last else 0
        if value and before and (total := _together(before, value)):
            merged[-1] = Token(str(total), "", "number", sentence=token.sentence)
        else:
            merged.append(token)
    return merged


def _spelt_out(token: Token, lexicon: Lexicon) -> int:
    """The number that the token names as a word; 0 if the token is not a word for a number."""
    if token.kind == "number" and not token.raw:
        return int(token.form)
    return int(token.form in lexicon.one)


def _together(left: int, right: int) -> int:
    """The single number that two number words form together; 0 if the words are two numbers."""
    if right in _MULTIPLIERS:
        return left * right if left < right else 0
    for unit in (1000, 100, 10):
        if not left % unit and left >= max(unit, 20) and right < unit:
            return left + right
    return 0


@lru_cache(maxsize=16384)
def _spelling(word: str) -> str:
    """Convert `word` to one spelling, so that its British and American spellings become equal."""
    if len(word) > 4 and word.isascii():
        for pattern, replacement in _SPELLING:
            word, changed = pattern.subn(replacement, word, count=1)
            if changed:
                break
    return word


def _number(written: str) -> str:
    """A number in its canonical form: `10,000` and `10000` become equal, and `1,08` and `1.08` become equal. Versions
    and times are not changed."""
    parts = re.split(r"[.,]", written)
    if ":" in written or len(parts) == 1:
        return written
    if len(set(re.findall(r"[.,]", written))) == 1 and all(len(part) == 3 for part in parts[1:]) and len(parts[0]) < 4:
        return "".join(parts)
    return ".".join(parts)
