"""Vectors of texts by the packaged encoder, kept in one file between two runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.cache.packing import Vector
from gateway.cache.semantic.minilm import MiniLM

_AT_ONCE = 32
DIMENSIONS = 384


class Vectors:
    """In half precision; a text that is longer than the model reads has the zero vector."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._rows: dict[str, NDArray[np.float16]] = {}
        if file is not None and file.exists():
            kept = np.load(file)
            self._rows = dict(zip(orjson.loads(kept["texts"].tobytes()), kept["vectors"], strict=True))

    def add(self, texts: Iterable[str]) -> None:
        """Embed what is new, and keep all in the file."""
        new = sorted({text for text in texts if text not in self._rows}, key=len)
        model = MiniLM() if new else None
        for start in range(0, len(new), _AT_ONCE):
            some = new[start : start + _AT_ONCE]
            assert model is not None
            for text, vector in zip(some, model.embed_all(some), strict=True):
                self._rows[text] = np.zeros(DIMENSIONS, np.float16) if vector is None else vector.astype(np.float16)
        if new and self._file is not None:
            texts = np.frombuffer(orjson.dumps(list(self._rows)), dtype=np.uint8)
            np.savez(self._file, texts=texts, vectors=np.array(list(self._rows.values())))

    def __call__(self, text: str) -> Vector:
        if text not in self._rows:
            self.add([text])
        vector: Vector = self._rows[text].astype(np.float32)
        return vector

    def cosine(self, left: str, right: str) -> float:
        return float(self(left) @ self(right))
