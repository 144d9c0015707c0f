"""An embedder that uses any sentence-transformers model (extra `st`). Only this module imports the library."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gateway.cache.semantic.embedder import Model, ModelEmbedder, Vector
from gateway.errors import EmbedderUnavailable


class SentenceTransformerEmbedder(ModelEmbedder):
    """Implements `Embedder` with a model in a local folder. `device`: name of the device in torch (`cpu`, `cuda`)."""

    def __init__(self, path: str, *, device: str = "cpu", dimensions: int = 384, max_tokens: int = 256) -> None:
        super().__init__(
            partial(_load, path, device, dimensions, max_tokens),
            name=f"sentence-transformers:{path}",
            dimensions=dimensions,
            max_tokens=max_tokens,
        )


class _Transformer:
    """Implements `Model` of embedder.py."""

    def __init__(self, model: Any, max_tokens: int) -> None:
        self._model, self._max_tokens = model, max_tokens

    def embed_all(self, texts: Sequence[str]) -> list[Vector | None]:
        lengths = [len(ids) for ids in self._model.tokenizer(list(texts))["input_ids"]]
        read = [text for text, length in zip(texts, lengths, strict=True) if length <= self._max_tokens]
        vectors = iter(self._encode(read) if read else ())
        return [next(vectors) if length <= self._max_tokens else None for length in lengths]

    def _encode(self, texts: list[str]) -> Vector:
        """The vectors of `texts`, one row for each text."""
        rows: Vector = self._model.encode(
            texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return rows.astype("float32", copy=False)


def transformer(path: str, device: str, *, local: bool = True) -> Any:
    """The sentence-transformers model. `local`: do not download anything. Raises the errors of torch and of the
    model."""
    from sentence_transformers import SentenceTransformer  # imports torch, which takes seconds and more than a gigabyte

    return SentenceTransformer(path, device=device, local_files_only=local)


def _load(path: str, device: str, dimensions: int, max_tokens: int) -> Model:
    """The loaded model. Raises EmbedderUnavailable, and the errors of torch and of the model."""
    model = transformer(path, device)
    if model.get_embedding_dimension() != dimensions:
        raise EmbedderUnavailable(f"{path} gives other than {dimensions} dimensions; say how many")
    return _Transformer(model, max_tokens)
