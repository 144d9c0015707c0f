"""A value that is not built before it is needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """Builds a value once for all threads. If building the value raises an error, the next caller builds it again."""

    def __init__(self, build: Callable[[], T]) -> None:
        self._build = build
        self._building = threading.Lock()
        self._built: tuple[T] | None = None

    @property
    def ready(self) -> bool:
        return self._built is not None

    def get(self) -> T:
        """The value. Blocks until the value is built, so on the event loop, call this only if `ready` is true. Raises
        the errors of the function `build`."""
        if self._built is None:
            with self._building:
                if self._built is None:
                    self._built = (self._build(),)
        return self._built[0]

    async def load(self) -> T:
        """The value. If the value is not built yet, a thread builds it. Raises the errors of the function `build`."""
        return self.get() if self.ready else await asyncio.to_thread(self.get)
