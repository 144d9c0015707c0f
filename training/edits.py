"""Edits questions by rule, so that the answer changes or stays the same, to make training pairs with any vocabulary."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_WORD = re.compile(r"[^\W\d_]+")
_NAME = re.compile(r"(?<=[a-záéíóúãõâêç,] )[A-ZÁÉÍÓÚ][^\W\d_]{2,}")
_NUMBER = re.compile(r"\d+")
_ASKS = (
    ("How", "Why", "When", "Where", "Who"),
    ("Cómo", "Por qué", "Cuándo", "Dónde", "Quién"),
    ("Como", "Por que", "Quando", "Onde", "Quem"),
)
_LEAST = 4
"""Least number of letters of a word that is exchanged."""

_INSIDE = 0.3
"""Share of one-word asides that are inserted inside the question."""

Edit = Callable[[str], str]


class Editor:
    """Edits texts, always in the same way for one seed. An edit that does not apply returns the text unchanged."""

    def __init__(self, texts: list[str], additions: list[str], asides: list[str], seed: int = 0) -> None:
        """`texts`: source of words and names for other texts. `additions` change an answer, `asides` do not."""
        self._chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
        self._additions, self._asides = additions, asides
        self._words = [word for text in texts for word in _WORD.findall(text) if len(word) >= _LEAST and word.islower()]
        self._names = [name for text in texts for name in _NAME.findall(text)]
        self.edits: tuple[Edit, ...] = (
            *(self.number, self.name, self.words, self.asked, self.negated),
            *(self.added, self.added_sentence, self.dropped, self.inserted),
        )

    def number(self, text: str) -> str:
        return self._replaced(text, _NUMBER, lambda old: str(int(old[:9]) + self._chance.randint(1, 30)))

    def name(self, text: str) -> str:
        return self._replaced(text, _NAME, lambda old: self._chance.choice(self._names))

    def words(self, text: str) -> str:
        """Replace one or two neighbouring words by others."""
        count = self._chance.randint(1, 2)
        pattern = re.compile(r"\b[^\W\d_]{4,}" + r" [^\W\d_]{3,}" * (count - 1))
        return self._replaced(text, pattern, lambda old: " ".join(self._chance.choices(self._words, k=count)))

    def asked(self, text: str) -> str:
        """Replace the question word by another one."""
        for words in _ASKS:
            for word in words:
                bare = text.lstrip("¿")
                if bare.startswith(f"{word} "):
                    other = self._chance.choice([choice for choice in words if choice != word])
                    return text[: len(text) - len(bare)] + other + bare[len(word) :]
        return text

    def negated(self, text: str) -> str:
        words = text.split()
        if len(words) < _LEAST:
            return text
        no = "no" if "¿" in text else self._chance.choice(("not", "never", "não"))
        words.insert(self._chance.randint(2, len(words) - 1), no)
        return " ".join(words)

    def added(self, text: str) -> str:
        bare, end = _without_end(text)
        return f"{bare} {self._chance.choice(self._additions)}{end}"

    def aside(self, text: str) -> str:
        """Add an aside. This is the only edit that does not change the answer."""
        bare, end = _without_end(text)
        aside = self._chance.choice(self._asides)
        words = bare.split()
        if " " not in aside and len(words) > _LEAST and self._chance.random() < _INSIDE:
            words.insert(self._chance.randint(1, _LEAST - 1), aside)
            return " ".join(words) + end
        return f"{bare} {aside}{end}"

    def added_sentence(self, text: str) -> str:
        return f"{text} {self._chance.choice(self._additions).capitalize()}."

    def dropped(self, text: str) -> str:
        words = text.split()
        if len(words) < 2 * _LEAST:
            return text
        start = self._chance.randint(1, len(words) - 3)
        return " ".join(words[:start] + words[start + self._chance.randint(1, 3) :])

    def inserted(self, text: str) -> str:
        words = text.split()
        place = self._chance.randint(1, len(words))
        added = self._chance.choices(self._words, k=self._chance.randint(1, 3))
        return " ".join(words[:place] + added + words[place:])

    def _replaced(self, text: str, pattern: re.Pattern[str], other: Callable[[str], str]) -> str:
        found = list(pattern.finditer(text))
        if not found:
            return text
        match = self._chance.choice(found)
        return text[: match.start()] + other(match.group()) + text[match.end() :]


def _without_end(text: str) -> tuple[str, str]:
    bare = text.rstrip(" .?!")
    return bare, text[len(bare) :].strip()
