"""Asynchronous access to an embedding model. The model is loaded on first use and runs in a separate thread. Recent
vectors are remembered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from gateway.cache.packing import Vector
from gateway.errors import EmbedderUnavailable
from gateway.runtime.tasks import Tasks

__all__ = ["Model", "ModelEmbedder", "OnnxEmbedder", "Vector"]

log = logging.getLogger(__name__)

DIMENSIONS = 384
MAX_TOKENS = 256
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"

_CHARACTERS_PER_TOKEN = 24
"""Maximum characters of a text, for each token of the model's limit. Real text has fewer characters per token, so a
longer text exceeds the limit and is rejected before it is tokenised."""


Owned = tuple[str, str]
"""(Owner, text). The owner is the scope within which a vector is reused."""


class Model(Protocol):
    """A model whose methods block. All calls come from one thread."""

    def embed_all(self, texts: Sequence[str]) -> list[Vector | None]:
        """A unit vector for each of the `texts`. None for a text that exceeds the model's limit."""
        ...


class ModelEmbedder:
    """Implements `Embedder` with any model, which is loaded by `begin`. Texts that arrive while the model is busy are
    embedded together afterwards."""

    def __init__(
        self,
        load: Callable[[], Model],
        *,
        name: str,
        dimensions: int,
        max_tokens: int,
        remembered: int = 4096,
        waiting: int = 32,
        together: int = 8,
    ) -> None:
        """`remembered`: number of vectors kept in memory. `waiting`: number of texts that may wait. `together`: maximum
        number of texts in a batch."""
        self.name, self.dimensions, self.max_tokens = name, dimensions, max_tokens
        self._remembered: OrderedDict[Owned, Vector | None] = OrderedDict()
        self._limit, self._waiting_limit, self._together = remembered, waiting, together
        self._load_model = load
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self._tasks = Tasks()
        self._model: Model | None = None
        self._begun = self._failed = self._working = False
        self._waiting: OrderedDict[Owned, asyncio.Future[Vector | None]] = OrderedDict()
        """Texts that are waiting to be embedded."""
        self._under_way: dict[Owned, asyncio.Future[Vector | None]] = {}
        self._embedded = self._recalled = self._batches = 0
        self.cpu_s = 0.0
        """Processor seconds that embedding has used."""

    @property
    def ready(self) -> bool:
        return self._model is not None

    @property
    def failed(self) -> bool:
        return self._failed

    async def open(self) -> None:
        """Does nothing. The model is loaded only if a policy needs vectors."""

    def begin(self) -> None:
        """Start to load the model in the background. Repeated calls have no effect."""
        if not self._begun:
            self._begun = True
            self._tasks.spawn(self._load(), "embedder-load")

    async def _load(self) -> None:
        try:
            self._model = await asyncio.get_running_loop().run_in_executor(self._thread, self._loaded)
        except Exception:
            # If a model or its libraries fail, the gateway continues without the semantic cache.
            self._failed = True
            log.exception("the embedder %s could not be loaded; the semantic cache is off", self.name)

    def _loaded(self) -> Model:
        # Import the whole package first. A model's library imports NumPy's internal module; if another thread imports
        # NumPy at that moment, the two wait for each other, and both get an incomplete NumPy until the process ends.
        import numpy  # noqa: F401

        return self._load_model()

    async def aclose(self) -> None:
        await self._tasks.aclose()
        for future in (*self._waiting.values(), *self._under_way.values()):
            future.cancel()
        self._waiting.clear()
        self._model = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def wait_ready(self, timeout_s: float) -> None:
        """Start to load the model, and wait until it is loaded. Raises EmbedderUnavailable if loading fails, and
        TimeoutError if loading takes longer than `timeout_s` seconds."""
        self.begin()
        async with asyncio.timeout(timeout_s):
            while not self.ready:
                if self.failed:
                    raise EmbedderUnavailable("the embedder could not be loaded")
                await asyncio.sleep(0.02)

    async def embed(self, text: str, owner: str = "") -> Vector | None:
        """The unit vector of `text`, shape (dimensions,); None if `text` is too long. `owner`: scope within which the
        vector is reused. Raises EmbedderUnavailable if the model is not loaded or too many texts wait, and the
        model's errors."""
        owned = owner, text  # reuse by other owners would show by its speed which questions they ask
        if owned in self._remembered:
            self._recalled += 1
            self._remembered.move_to_end(owned)
            return self._remembered[owned]
        if self._model is None:
            raise EmbedderUnavailable("the embedder is not ready")
        if len(text) > self.max_tokens * _CHARACTERS_PER_TOKEN:
            return None
        future = self._waiting.get(owned) or self._under_way.get(owned)
        if future is None:
            if len(self._waiting) >= self._waiting_limit:
                raise EmbedderUnavailable("too many texts are waiting for the embedder")
            future = self._waiting[owned] = asyncio.get_running_loop().create_future()
            if not self._working:
                self._working = True
                self._tasks.spawn(self._work(self._model), "embedder")
        return await asyncio.shield(future)

    async def _work(self, model: Model) -> None:
        """Embed the waiting texts until no text is waiting."""
        try:
            while self._waiting:
                batch = self._under_way = self._next()
                self._batches += 1
                try:
                    vectors = await asyncio.get_running_loop().run_in_executor(
                        self._thread, self._embed, model, [text for _, text in batch]
                    )
                except Exception as error:  # the error of the model is raised in the callers
                    self._fail(batch, error)
                    vectors = []
                for (owned, future), vector in zip(batch.items(), vectors, strict=False):
                    self._remember(owned, vector)
                    if not future.done():
                        future.set_result(vector)
                self._under_way = {}
        finally:
            self._working = False

    def _next(self) -> dict[Owned, asyncio.Future[Vector | None]]:
        """The next batch: the text that has waited longest, and waiting texts of similar length."""
        _, first = next(iter(self._waiting))
        alike = sorted(self._waiting, key=lambda owned: abs(len(owned[1]) - len(first)))[: self._together]
        return {owned: self._waiting.pop(owned) for owned in alike}

    def _embed(self, model: Model, texts: Sequence[str]) -> list[Vector | None]:
        began = time.thread_time()
        try:
            return model.embed_all(texts)
        finally:
            self.cpu_s += time.thread_time() - began

    @staticmethod
    def _fail(batch: dict[Owned, asyncio.Future[Vector | None]], error: Exception) -> None:
        for future in batch.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark the error as retrieved, because the caller may no longer exist

    def _remember(self, owned: Owned, vector: Vector | None) -> None:
        self._embedded += 1
        self._remembered[owned] = vector
        if len(self._remembered) > self._limit:
            self._remembered.popitem(last=False)

    def stats(self) -> dict[str, int | float | str]:
        return {
            "embedder_ready": int(self.ready),
            "embedder_failed": int(self.failed),
            "embedder_embedded": self._embedded,
            "embedder_recalled": self._recalled,
            "embedder_batches": self._batches,
            "embedder_waiting": len(self._waiting) + len(self._under_way),
            "embedder_cpu_seconds": self.cpu_s,
        }


def _minilm() -> Model:
    from gateway.cache.semantic.minilm import MiniLM  # the import takes 200 MiB with its libraries

    return MiniLM()


class OnnxEmbedder(ModelEmbedder):
    """The default embedder: the packaged model all-MiniLM-L6-v2 with int8 weights."""

    NAME = f"all-MiniLM-L6-v2-int8@{WEIGHTS_SHA256[:8]}"

    def __init__(self, *, remembered: int = 4096, waiting: int = 32) -> None:
        super().__init__(
            _minilm,
            name=self.NAME,
            dimensions=DIMENSIONS,
            max_tokens=MAX_TOKENS,
            remembered=remembered,
            waiting=waiting,
        )
