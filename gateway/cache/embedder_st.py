"""Another embedder: any sentence-transformers model, for the extra `st`; the only file that imports that library."""

from __future__ import annotations

from functools import partial
from typing import Any

from gateway.cache.embedder import Model, ModelEmbedder, Vector
from gateway.errors import EmbedderUnavailable


class SentenceTransformerEmbedder(ModelEmbedder):
    """`Embedder` on a local model directory; `device` as torch calls it (`cpu`, `cuda`)."""

    def __init__(self, path: str, *, device: str = "cpu", dimensions: int = 384, max_tokens: int = 256) -> None:
        super().__init__(
            partial(_load, path, device, dimensions, max_tokens),
            name=f"sentence-transformers:{path}",
            dimensions=dimensions,
            max_tokens=max_tokens,
        )


class _Transformer:
    """Implements Model."""

    def __init__(self, model: Any, max_tokens: int) -> None:
        self._model, self._max_tokens = model, max_tokens

    def embed(self, text: str) -> Vector | None:
        if len(self._model.tokenizer(text)["input_ids"]) > self._max_tokens:
            return None
        vector: Vector = self._model.encode(
            text, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return vector.astype("float32", copy=False)


def _load(path: str, device: str, dimensions: int, max_tokens: int) -> Model:
    """Raises EmbedderUnavailable, and whatever torch and its models raise."""
    from sentence_transformers import SentenceTransformer  # torch: seconds, and more than a gigabyte

    model = SentenceTransformer(path, device=device, local_files_only=True)
    if model.get_embedding_dimension() != dimensions:
        raise EmbedderUnavailable(f"{path} gives other than {dimensions} dimensions; say how many")
    return _Transformer(model, max_tokens)
