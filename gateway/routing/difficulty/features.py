"""Computes the features of a text: hashed word and character n-grams, and lexical counts. Uses NumPy only."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
Floats = NDArray[np.float32]

HALF = 4096
"""Number of characters that are read from each end of a long text."""
WORD_BITS = 17
CHAR_BITS = 17
BINS = (1 << WORD_BITS) + (1 << CHAR_BITS)
VOCABULARY_BITS = 20
COUNTS = 27
"""Number of lexical features that are counts. The other lexical features are sizes and shares, which have extreme
values for any short text."""

_CHAR_SIZES = (3, 4, 5)
_MOST_BYTES = 8 * HALF + 16
_BASE = 0x9E3779B97F4A7C15
_MIXER = np.uint64(0xD6E8FEB86659FD93)
_HALF_WORD = np.uint64(32)

_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_SENTENCE = re.compile(r"[.!?](?: |$)")
_OPTION = re.compile(r"(?: |^)\(?([a-j])[.)](?= )")

_WORD_GROUPS: tuple[frozenset[str], ...] = tuple(
    frozenset(words.split())
    for words in (
        "not no never except least false incorrect cannot neither nor without none unlikely",
        "more less than fewer greater most older younger larger smaller longer shorter",
        "twice half third quarter double triple times each every per percent total average remaining rest",
        "what which who where when how why whose",
        "write find calculate compute determine prove explain describe solve evaluate estimate show derive implement",
        "if then all some any must only either both following statement true",
        "i you he she it they his her their my your we",
        "the a an of in to is and was for on with by at as that from",
    )
)
_GROUP_OF = {word: number for number, group in enumerate(_WORD_GROUPS) for word in group}
_OPERATORS = np.frombuffer(b"+-*/=<>", np.uint8)
_MARKUP = np.frombuffer(b"^_{}", np.uint8)


def _powers(base: int) -> U64:
    table = np.full(_MOST_BYTES + 1, base, dtype=np.uint64)
    table[0] = 1
    return np.cumprod(table, dtype=np.uint64)


_POWERS = _powers(_BASE)
_INVERSES = _powers(pow(_BASE, -1, 2**64))
_IS_WORD = np.zeros(256, dtype=bool)
_IS_WORD[[*range(48, 58), *range(97, 123), 95, *range(128, 256)]] = True


@dataclass(frozen=True, slots=True)
class Features:
    """The features of one text. `bins`: the distinct hash bins of its n-grams, ascending, shape (n,). `counts`: log(1 +
    occurrences) for each bin, shape (n,). `word_bins`: the number of bins for words and word pairs; these come first.
    """

    bins: NDArray[np.int64]
    counts: Floats
    word_bins: int
    lexical: Floats
    vocabulary: NDArray[np.int64]
    """Hashes (20 bits) of the text's distinct longer words."""


def normalise(text: str) -> str:
    """The text in lower case with uniform white space. Of a long text, only the beginning and the end are kept."""
    if len(text) > 2 * HALF:
        text = text[:HALF] + " " + text[-HALF:]
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


@lru_cache(maxsize=16)
def extract(text: str) -> Features:
    """Compute the features of `text` after `normalise`. The results are cached, because the grader and the plan need
    the same features."""
    plain = normalise(text)
    encoded = np.frombuffer(f" {plain} ".encode("utf-8", "replace"), np.uint8)[:_MOST_BYTES]
    byte_counts = np.bincount(encoded, minlength=256)
    words = _WORD.findall(plain)
    bins, counts, word_bins = _ngrams(np.where((encoded >= 48) & (encoded <= 57), np.uint8(48), encoded))
    return Features(
        bins,
        counts,
        word_bins,
        _lexical(plain, words, byte_counts),
        _vocabulary(words),
    )


def _prefixes(encoded: NDArray[np.uint8]) -> U64:
    """The hashes of all prefixes of the text. From them the hash (modulo 2^64) of any part can be computed. `encoded`:
    shape (n,)."""
    sums = np.zeros(len(encoded) + 1, dtype=np.uint64)
    np.cumsum((encoded.astype(np.uint64) + np.uint64(1)) * _POWERS[: len(encoded)], out=sums[1:])
    return sums


def _spans(sums: U64, begin: NDArray[np.int64], end: NDArray[np.int64], salt: int) -> U64:
    hashed = (sums[end] - sums[begin]) * _INVERSES[begin] + np.uint64(salt)
    hashed ^= hashed >> _HALF_WORD
    hashed *= _MIXER
    hashed ^= hashed >> _HALF_WORD
    return hashed


def _word_edges(encoded: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    inside = _IS_WORD[encoded]
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    pairs = len(edges) // 2 * 2
    return edges[0:pairs:2], edges[1:pairs:2]


def _ngrams(encoded: NDArray[np.uint8]) -> tuple[NDArray[np.int64], Floats, int]:
    """The bins of the text's n-grams, their counts, and the number of bins for words and word pairs. Both arrays have
    shape (n,), and the bins for words come first."""
    sums = _prefixes(encoded)
    begin, end = _word_edges(encoded)
    words = np.concatenate([_spans(sums, begin, end, 1), _spans(sums, begin[:-1], end[1:], 2)])
    spaces = np.concatenate([[0], np.cumsum(encoded == 32)])
    pieces = []
    for size in _CHAR_SIZES:
        start = np.arange(max(len(encoded) - size + 1, 0))
        start = start[spaces[start + size - 1] == spaces[start + 1]] if len(start) else start
        pieces.append(_spans(sums, start, start + size, 10 + size))
    word_bins, word_counts = _count(words, WORD_BITS)
    char_bins, char_counts = _count(np.concatenate(pieces), CHAR_BITS)
    return (
        np.concatenate([word_bins, char_bins + (1 << WORD_BITS)]),
        np.log1p(np.concatenate([word_counts, char_counts]), dtype=np.float32),
        len(word_bins),
    )


def _count(hashed: U64, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    places = np.sort((hashed >> np.uint64(64 - bits)).astype(np.int64))
    first = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]])) if len(places) else places
    return places[first], np.diff(np.append(first, len(places)))


def _vocabulary(words: Iterable[str]) -> NDArray[np.int64]:
    """The hashes of the text's longer words, which show its language and its subject. If the text has none, the hashes
    of its short words."""
    distinct = {word for word in words if len(word) > 1}
    chosen = {word for word in distinct if len(word) > 3} or distinct
    joined = np.frombuffer(f" {' '.join(sorted(chosen))} ".encode("utf-8", "replace"), np.uint8)[:_MOST_BYTES]
    gaps = np.flatnonzero(joined == 32)
    hashed = _spans(_prefixes(joined), gaps[:-1] + 1, gaps[1:], 3) if chosen else np.zeros(0, np.uint64)
    return (hashed >> np.uint64(64 - VOCABULARY_BITS)).astype(np.int64)


def _options(plain: str) -> tuple[int, int]:
    """The number of lettered options in a multiple-choice question, and the position of the first one."""
    count, first = 0, len(plain)
    for found in _OPTION.finditer(plain):
        letter = ord(found[1]) - 97
        if letter == 0:
            count, first = 1, found.start()
        elif letter == count:
            count += 1
    return (count, first) if count > 1 else (0, len(plain))


def _numbers(plain: str) -> tuple[int, int, float]:
    found = _NUMBER.findall(plain)[:200]
    values = {float(number.replace(",", "")[:15]) for number in found}
    return len(found), len(values), max(values, default=0.0)


def _lexical(plain: str, words: list[str], byte_counts: NDArray[np.int64]) -> Floats:
    log: Callable[[float], float] = math.log1p
    size, total = max(len(plain), 1), max(len(words), 1)
    options, first = _options(plain)
    numbers, values, largest = _numbers(plain)
    sentences = len(_SENTENCE.findall(plain))
    groups = [0] * len(_WORD_GROUPS)
    letters = long_words = very_long_words = 0
    for word in words:
        length = len(word)
        letters += length
        long_words += length >= 9
        very_long_words += length >= 12
        if (group := _GROUP_OF.get(word)) is not None:
            groups[group] += 1
    per_byte = byte_counts.tolist()
    counts = [
        log(len(plain) - first), options, log(numbers), log(values), log(largest), log(per_byte[37]), log(per_byte[36]),
        log(sentences), total / (sentences + 1), log(per_byte[92]), log(int(byte_counts[_MARKUP].sum())),
        log(per_byte[40]), log(plain.count("___")), log(int(byte_counts[128:].sum())), log(per_byte[34]),
        log(per_byte[44]), log(per_byte[63]), log(very_long_words), log(plain.count("def ") + plain.count("return ")),
        *(log(count) for count in groups),
    ]  # fmt: skip
    sizes_and_shares = [
        log(size), log(total), log(first), size / total, letters / total, len(set(words)) / total, numbers / total,
        byte_counts[48:58].sum() / size, byte_counts[_OPERATORS].sum() / size, plain.endswith("?"), long_words / total,
        *(count / total for count in groups),
    ]  # fmt: skip
    return np.array(counts + sizes_and_shares, dtype=np.float32)
