"""A value that is built on first use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """Builds a value once, for all threads. After an error, the next caller tries again."""

    def __init__(self, build: Callable[[], T]) -> None:
        self._build = build
        self._building = threading.Lock()
        self._built: tuple[T] | None = None

    @property
    def ready(self) -> bool:
        return self._built is not None

    def get(self) -> T:
        """The value. Blocks while it is being built, so call it on the event loop only if `ready`. Raises the errors of
        building it."""
        if self._built is None:
            with self._building:
                if self._built is None:
                    self._built = (self._build(),)
        return self._built[0]

    async def load(self) -> T:
        """The value, built in a thread if necessary. Raises the errors of building it."""
        return self.get() if self.ready else await asyncio.to_thread(self.get)
