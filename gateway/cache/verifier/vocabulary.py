"""Learned data about words: their frequency in each language, and their vectors, made from the embedder's word
pieces.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from zlib import crc32

import numpy as np
import orjson
from numpy.typing import NDArray

_DATA = Path(__file__).parents[1] / "data"
FREQUENCIES = _DATA / "frequencies.npz"
PIECES = _DATA / "pieces.npz"
TOKENIZER = _DATA / "tokenizer.json"

COLUMNS = ("en", "es", "pt", "other")
STEPS = 25
"""Number of table entries per unit of Zipf frequency. The Zipf frequency of a word is log10 of its occurrences in a
billion words."""
_UNKNOWN = (0.0, 0.0, 0.0, 0.0)
_MOST_COMMON, _RAREST = 7.5, 2.5
"""The Zipf frequency at which the rarity of a word is 0, and the Zipf frequency at which it is 1."""
_LONGEST = 40
"""Maximum letters of a word."""

Floats = NDArray[np.float32]


class Vocabulary:
    """Word → its Zipf frequencies and its short vector. The words must be in lower case and without accents."""

    def __init__(
        self,
        keys: NDArray[np.uint32],
        zipf: NDArray[np.uint8],
        pieces: dict[str, int],
        vectors: Floats,
    ) -> None:
        """`keys`: sorted CRC-32 of each word, shape (n,). `zipf`: frequencies in units of 1/`STEPS`, shape (n, 4).
        `pieces`: word piece → its row in `vectors`. `vectors`: shape (pieces, dimensions)."""
        self._keys, self._zipf = keys, zipf
        self._pieces, self._vectors = pieces, vectors
        self.zipf = lru_cache(maxsize=16384)(self._look_up)
        self.vector = lru_cache(maxsize=8192)(self._mean)
        self.rarity = lru_cache(maxsize=16384)(self._rarity)
        self.width = vectors.shape[1]

    @classmethod
    @lru_cache(maxsize=1)
    def load(cls) -> Vocabulary:
        """A vocabulary with the packaged tables. The first call takes about 50 ms and should not run on the event
        loop."""
        table, vectors = np.load(FREQUENCIES), np.load(PIECES)
        pieces: dict[str, int] = orjson.loads(TOKENIZER.read_bytes())["model"]["vocab"]
        return cls(
            table["keys"],
            table["zipf"],
            pieces,
            vectors["pieces"].astype(np.float32) / vectors["scale"],
        )

    def _look_up(self, word: str) -> tuple[float, ...]:
        """The Zipf frequencies of the word: (English, Spanish, Portuguese, highest of other languages). 0 if the word
        does not occur."""
        key = np.uint32(crc32(word.encode()))  # with a Python int, NumPy would copy the table for the comparison
        place = int(self._keys.searchsorted(key))
        if place == len(self._keys) or self._keys[place] != key:
            return _UNKNOWN
        return tuple(value / STEPS for value in self._zipf[place].tolist())

    def known(self, word: str, language: str) -> bool:
        """Whether `word` is a word of `language` or of English. English words count because they occur in texts of
        all languages.
        """
        zipf = self.zipf(word)
        return zipf[0] > 0 or (language in COLUMNS and zipf[COLUMNS.index(language)] > 0)

    def _mean(self, word: str) -> Floats:
        """The mean of the vectors of the word's pieces, shape (width,). Zeros if the word has no pieces."""
        found = self._parts(word)
        if not found:
            return np.zeros(self.width, dtype=np.float32)
        mean: Floats = self._vectors[found].mean(axis=0)
        return mean

    def _rarity(self, word: str, language: str) -> float:
        """The rarity of a word, from 0 for the most common to 1 for the rarest and for unknown ones."""
        zipf = self.zipf(word)
        frequency = max(zipf[COLUMNS.index(language)], zipf[0] - 1.0)
        return min(1.0, max(0.0, (_MOST_COMMON - frequency) / (_MOST_COMMON - _RAREST)))

    def _parts(self, word: str) -> list[int]:
        """Divide the word into pieces, longest first, and return their rows in `vectors`. Empty if some letter is
        in no piece.
        """
        found: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST:
            for end in range(len(word), start, -1):
                piece = word[start:end] if not start else "##" + word[start:end]
                if piece in self._pieces:
                    found.append(self._pieces[piece])
                    start = end
                    break
            else:
                return []
        return found
