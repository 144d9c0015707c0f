"""Questions of stored answers that could not be embedded at once, because the embedder was loading, busy or paused.

They are embedded one after another when the embedder is available.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from gateway.cache.entry import Entry
from gateway.cache.keys import Question
from gateway.cache.result import Ticket
from gateway.cache.semantic.service import Semantic
from gateway.runtime.tasks import Tasks

_KEPT = 256
"""Maximum number of questions that wait for the embedder. The newest questions are kept. Older questions are found only
by exact look-ups."""


class PendingQuestions:
    def __init__(self, semantic: Semantic, mean: Callable[[Ticket, Entry, Question], Awaitable[None]]) -> None:
        """`mean`: adds the question of one stored answer to the semantic index. It is called for one answer after
        another.
        """
        self._semantic, self._mean = semantic, mean
        self._waiting: deque[tuple[Ticket, Entry, Question]] = deque(maxlen=_KEPT)
        self._working = False
        self._tasks = Tasks()

    def add(self, ticket: Ticket, entry: Entry, question: Question) -> None:
        if not self._working:
            self._working = True
            self._tasks.spawn(self._work(), "cache-early")
        self._waiting.append((ticket, entry, question))

    async def _work(self) -> None:
        try:
            while self._waiting and await self._semantic.wait_available():
                await self._mean(*self._waiting.popleft())
        finally:
            self._working = False
            self._waiting.clear()

    async def aclose(self) -> None:
        await self._tasks.aclose()
