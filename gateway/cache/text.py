"""A prompt as the verifier reads it: canonical tokens, what is quoted or handed over to be worked on, its language."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from gateway.cache.words import LANGUAGES, Lexicon, Words

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_QUOTED = re.compile(r'"+([^"\n]+)"+|“([^”]+)”|«([^»]+)»|`([^`\n]+)`|‘([^’\n]{2,})’|(?<![\w])\'([^\'\n]{2,})\'(?!\w)')
_TOKEN = re.compile(
    r"(?P<link>(?:https?://|www\.)[^\s<>\"']+|[\w.+-]+@[\w-]+\.[\w.]+|(?:[~.]?/[\w.-]+){2,})"
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
_MARKS = {"es": ("¿", "¡", "ñ"), "pt": ("ã", "õ", "ç", "nh", "lh")}
_LONGEST_QUOTE = 6
"""Words; a longer quotation is material to work on, not a name."""
_LONGEST_LABEL = 3
"""Words before a colon that name the matter, as in `India: …`."""


@dataclass(frozen=True, slots=True)
class Token:
    form: str
    """Canonical: lower case, no accents, contraction expanded, number in digits."""
    raw: str
    """As written, lower case."""
    kind: str
    """word | number | ident | sign"""
    name: bool = False
    """Capitalised where no sentence begins."""
    quoted: bool = False
    sentence: int = 0
    """Which sentence it stands in, counted from 0."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One text, read once."""

    tokens: tuple[Token, ...]
    forms: tuple[str, ...]
    payload: tuple[str, ...]
    """Code, long quotations, text handed over: whatever must be the same to the letter."""
    language: str
    """en, es, pt; empty when it cannot be told."""

    @property
    def empty(self) -> bool:
        return not self.tokens and not self.payload


@lru_cache(maxsize=16384)
def plain(word: str) -> str:
    """Without accents; ñ is a letter of its own."""
    if word.isascii():
        return word
    kept = word.replace("ñ", "\0")
    bare = "".join(char for char in unicodedata.normalize("NFD", kept) if not unicodedata.combining(char))
    return bare.replace("\0", "ñ")


class Reader:
    """Text → Reading. Pure; remembers nothing."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def language(self, text: str) -> str:
        """The language with clearly most stop words and letters of its own, or empty."""
        text = text.lower()
        words = [plain(word) for word in re.findall(r"[^\W\d_]+", text)]
        counts = sorted(
            (
                sum(word in self._words.lexicons[name].stopwords for word in words)
                + sum(mark in text for mark in _MARKS.get(name, ())),
                name,
            )
            for name in LANGUAGES
        )[::-1]
        return counts[0][1] if counts[0][0] > counts[1][0] else ""

    def timely(self, reading: Reading) -> bool:
        """Does the answer depend on when it is asked?"""
        names = (reading.language,) if reading.language else LANGUAGES
        return any(form in self._words.lexicons[name].temporal for name in names for form in reading.forms)

    def read(self, text: str, language: str = "") -> Reading:
        """`language` serves where the text's own cannot be told."""
        text = unicodedata.normalize("NFKC", text).replace("’", "'").strip()
        language = self.language(text) or language
        lexicon = self._words.lexicons[language or "en"]
        courtesies = [self._words.lexicons[name].courtesy for name in ((language,) if language else LANGUAGES)]
        payload: list[str] = []

        def keep(match: re.Match[str]) -> str:
            payload.append("\n".join(line.rstrip() for line in match.group().strip().splitlines()))
            return "\n"

        text = _FENCE.sub(keep, text)
        text = _handed_over(text, courtesies, payload)
        tokens = self._merge(self._tokens(text, lexicon, payload))
        return Reading(tuple(tokens), tuple(token.form for token in tokens), tuple(payload), language)

    def _tokens(self, text: str, lexicon: Lexicon, payload: list[str]) -> list[Token]:
        tokens: list[Token] = []
        end = 0
        cased = not (text.isupper() or text.islower() or text.istitle())
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
            # After a full stop, question mark or at the very beginning a capital says nothing.
            gap = text[last_end : match.start()]
            begins = not into or any(mark in gap for mark in ".?!:¿¡\n")
            sentence += bool(into) and any(mark in gap for mark in ".?!\n")
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
        for part in lexicon.expand.get(form, (form,)):
            if number := lexicon.numbers.get(part):
                into.append(Token(number, number, "number", False, False, sentence))
                continue
            bare = part.removesuffix("'s")
            canonical = self._words.synonyms.get(bare) or _spelling(bare)
            into.append(Token(canonical, raw if bare == form else canonical, "word", name, sentence=sentence))

    @staticmethod
    def _merge(tokens: list[Token]) -> list[Token]:
        """`por que`, `por qué` → `porque`: written apart or together, it asks the same."""
        merged: list[Token] = []
        skip = False
        for token, following in pairwise([*tokens, Token("", "", "word")]):
            if skip:
                skip = False
            elif token.form == "por" and following.form == "que":
                merged.append(Token("porque", "porque", "word", sentence=token.sentence))
                skip = True
            else:
                merged.append(token)
        return merged


def _courteous(text: str, courtesies: list[frozenset[str]]) -> bool:
    words = [plain(word) for word in re.findall(r"[^\W_]+", text.lower())]
    return any(all(word in courtesy for word in words) for courtesy in courtesies)


def _handed_over(text: str, courtesies: list[frozenset[str]], payload: list[str]) -> str:
    """The instruction; what stands under it, or after a colon, goes to `payload`."""
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    while lines and _courteous(lines[0], courtesies):
        del lines[0]
    while lines and _courteous(lines[-1], courtesies):
        del lines[-1]
    if not lines:
        return text
    if len(lines) > 1:
        payload.append("\n".join(" ".join(line.split()) for line in lines[1:]))
    head = lines[0]
    while (greeting := _GREETING.match(head)) and _courteous(greeting[1], courtesies):
        head = head[greeting.end() :]
    before, colon, after = head.rpartition(": ")
    if not colon or len(after.split()) <= 2:
        return head
    payload.append(" ".join(after.lower().split()).rstrip(" .?!"))
    if len(before.split()) <= _LONGEST_LABEL:
        payload.append(" ".join(before.lower().split()))
    return before


@lru_cache(maxsize=16384)
def _spelling(word: str) -> str:
    """British and American spelling as one."""
    if len(word) > 4 and word.isascii():
        for pattern, replacement in _SPELLING:
            word, changed = pattern.subn(replacement, word, count=1)
            if changed:
                break
    return word


def _number(written: str) -> str:
    """`10,000` and `10000` are one number, `1,08` and `1.08` too; a version or a time stays as written."""
    parts = re.split(r"[.,]", written)
    if ":" in written or len(parts) == 1:
        return written
    if len(set(re.findall(r"[.,]", written))) == 1 and all(len(part) == 3 for part in parts[1:]) and len(parts[0]) < 4:
        return "".join(parts)
    return ".".join(parts)
