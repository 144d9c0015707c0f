"""An Embedder without a model: vectors from hashed words and letter triples, so that like texts lie close."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from gateway.errors import EmbedderUnavailable


class FakeEmbedder:
    name = "fake"
    dimensions = 384
    max_tokens = 256

    def __init__(self, *, ready: bool = True, failed: bool = False) -> None:
        self.ready, self.failed = ready, failed
        self.texts: list[str] = []
        self.owners: set[str] = set()

    def begin(self) -> None:
        """There is nothing to load."""

    async def embed(self, text: str, owner: str = "") -> np.ndarray | None:
        """None above 256 words."""
        if not self.ready:
            raise EmbedderUnavailable("not ready")
        self.texts.append(text)
        self.owners.add(owner)
        words = text.lower().split()
        if len(words) > self.max_tokens:
            return None
        vector = np.zeros(self.dimensions, dtype=np.float32)
        for word in words:
            bare = word.strip("¿?.,!")
            for piece in (bare, *(f" {bare} "[place : place + 3] for place in range(len(bare)))):
                vector[crc32(piece.encode()) % self.dimensions] += 1
        return vector / np.float32(np.linalg.norm(vector) or 1)
