"""A model as the event loop sees it: loaded when somebody needs it, worked in a thread of its own, remembered."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeAlias

from gateway.domain.tasks import Tasks
from gateway.errors import EmbedderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

Vector: TypeAlias = "NDArray[np.float32]"

DIMENSIONS = 384
MAX_TOKENS = 256
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"

_CHARACTERS_PER_TOKEN = 24
"""No text has more in practice: spares the tokenizer a megabyte."""


class Model(Protocol):
    """Blocking; called from one thread."""

    def embed(self, text: str) -> Vector | None:
        """The unit vector, or None when `text` is longer than the model reads."""
        ...


class ModelEmbedder:
    """`Embedder` on any model. Until `begin`, neither the model nor its libraries are in memory."""

    def __init__(
        self,
        load: Callable[[], Model],
        *,
        name: str,
        dimensions: int,
        max_tokens: int,
        remembered: int = 4096,
        waiting: int = 32,
    ) -> None:
        """`remembered`: vectors kept; `waiting`: texts that may queue before `embed` refuses."""
        self.name, self.dimensions, self.max_tokens = name, dimensions, max_tokens
        self._remembered: OrderedDict[str, Vector | None] = OrderedDict()
        self._limit, self._waiting_limit, self._waiting = remembered, waiting, 0
        self._load_model = load
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self._tasks = Tasks()
        self._model: Model | None = None
        self._begun = self._failed = False
        self._embedded = self._recalled = 0

    @property
    def ready(self) -> bool:
        return self._model is not None

    @property
    def failed(self) -> bool:
        return self._failed

    async def open(self) -> None:
        """Nothing to do: a gateway whose policies need no vectors never loads the model."""

    def begin(self) -> None:
        """Load in the background; called again it changes nothing."""
        if not self._begun:
            self._begun = True
            self._tasks.spawn(self._load(), "embedder-load")

    async def _load(self) -> None:
        try:
            self._model = await asyncio.get_running_loop().run_in_executor(self._thread, self._load_model)
        except Exception:
            # Whatever is wrong with a model or its libraries, the gateway serves on without the semantic cache.
            self._failed = True
            log.exception("the embedder %s could not be loaded; the semantic cache is off", self.name)

    async def aclose(self) -> None:
        await self._tasks.aclose()
        self._model = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def wait_ready(self, timeout_s: float) -> None:
        """Begin, and wait. Raises EmbedderUnavailable when it failed, TimeoutError when it takes longer."""
        self.begin()
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
        if len(text) > self.max_tokens * _CHARACTERS_PER_TOKEN:
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


def _minilm() -> Model:
    from gateway.cache.minilm import MiniLM  # 200 MiB with its libraries

    return MiniLM()


class OnnxEmbedder(ModelEmbedder):
    """The default: all-MiniLM-L6-v2, int8, packaged."""

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
