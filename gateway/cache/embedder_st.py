"""Another embedder: any sentence-transformers model, for the extra `st`; the only file that imports that library."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gateway.cache.embedder import Vector
from gateway.domain.tasks import Tasks
from gateway.errors import EmbedderUnavailable

log = logging.getLogger(__name__)


class SentenceTransformerEmbedder:
    """`Embedder` on a local model directory; `device` as torch calls it (`cpu`, `cuda`)."""

    def __init__(self, path: str, *, device: str = "cpu", dimensions: int = 384, max_tokens: int = 256) -> None:
        self.name = f"sentence-transformers:{path}"
        self.dimensions, self.max_tokens = dimensions, max_tokens
        self._path, self._device = path, device
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self._tasks = Tasks()
        self._model: Any = None
        self._failed = False

    @property
    def ready(self) -> bool:
        return self._model is not None

    @property
    def failed(self) -> bool:
        return self._failed

    async def open(self) -> None:
        """Begin to load and return at once."""
        self._tasks.spawn(self.load(), "embedder-load")

    async def load(self) -> None:
        """Load and wait for it; a failure is logged and shows in `failed`."""
        try:
            self._model = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)
        except Exception:
            # torch and its models fail in many ways; each of them means the same to us.
            self._failed = True
            log.exception("the sentence-transformers model at %s could not be loaded", self._path)

    def _load(self) -> Any:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(self._path, device=self._device, local_files_only=True)
        if model.get_embedding_dimension() != self.dimensions:
            raise EmbedderUnavailable(f"{self._path} gives other than {self.dimensions} dimensions; say how many")
        return model

    async def aclose(self) -> None:
        await self._tasks.aclose()
        self._model = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def embed(self, text: str) -> Vector | None:
        """The unit vector, or None when `text` is too long. Raises EmbedderUnavailable when not ready."""
        if self._model is None:
            raise EmbedderUnavailable("the embedder is not ready")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embed, text)

    def _embed(self, text: str) -> Vector | None:
        if len(self._model.tokenizer(text)["input_ids"]) > self.max_tokens:
            return None
        return np.asarray(
            self._model.encode(text, normalize_embeddings=True, show_progress_bar=False), dtype=np.float32
        )

    def stats(self) -> dict[str, int | float | str]:
        return {"embedder_ready": int(self.ready), "embedder_failed": int(self.failed)}
