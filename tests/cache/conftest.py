"""Caches on a real Valkey, and the requests and answers that go through them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest_asyncio

from gateway.cache.cache import Cache
from gateway.cache.result import Hit, Miss
from gateway.domain.answer import Sink
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.policy import Policy
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Key, Tenant
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog
from tests.fakes.embedder import FakeEmbedder
from tests.support.requests import chat_request
from tests.support.waiting import until

BACKEND = Backend(name="small", kind="openai", base_url="http://127.0.0.1:9/v1", model="tiny")


def tenant(team: str = "search", key: str = "k1", epoch: str = "e1", **policy: Any) -> Tenant:
    return Tenant(Key(key, team), Policy(team=team, **policy), epoch)


def request(
    text: str | list[dict[str, Any]] = "What is the capital of Peru?", controls: Controls | None = None, **fields: Any
) -> CompletionRequest:
    """A question that the cache may answer, or `text` as messages; a field of None is left out."""
    messages = {} if isinstance(text, str) else {"messages": text}
    given = {"temperature": 0, **messages, **fields}
    content = text if isinstance(text, str) else ""
    return chat_request(content, controls=controls, **{k: v for k, v in given.items() if v is not None})


def completion(text: str | None = "Lima.", finish: str = "stop", **message: Any) -> bytes:
    return orjson.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
        }
    )


class Given:
    """An Answer as a backend gave it, read to its end."""

    stream, over, status, content_type, ending, choices = False, True, 200, "application/json", b"", None

    def __init__(
        self, body: bytes | None = None, *, finish: str = "stop", complete: bool = True, cost: int | None = 700
    ) -> None:
        self.body = completion(finish=finish) if body is None else body
        self.finish, self.complete = finish, complete
        self.attempt: Attempt | None = Attempt("req_1-1", 1, BACKEND, time.time())
        self.attempt.usage, self.attempt.cost_pico = Usage(9, output_tokens=2), cost

    async def pipe_to(self, take: Sink) -> bool:
        return False

    def completion(self) -> bytes | None:
        return self.body

    def delivered_text(self) -> str:
        return "Lima."

    def delivered_characters(self) -> int:
        return 5

    async def aclose(self) -> None:
        return None


def record(who: Tenant, request_id: str = "req_1") -> Record:
    return Record(request_id, who, "auto", "openai_chat", False)


class Worker:
    """A cache as one worker has it, with shorthand for asking."""

    def __init__(self, cache: Cache, state: State, log: IndexLog) -> None:
        self.cache, self._state, self._log = cache, state, log

    async def ask(self, asked: CompletionRequest, who: Tenant) -> Record:
        """Look up only."""
        seen = record(who, asked.id)
        await self.cache.lookup(asked, who, seen)
        return seen

    async def misses(self, asked: CompletionRequest, who: Tenant) -> bool:
        return (await self.ask(asked, who)).cache == "miss"

    async def serve(self, asked: CompletionRequest, who: Tenant, answer: Given | None = None) -> Record:
        """Look up; on a miss the backend answers and that is stored. Waits until this worker knows it."""
        seen = record(who, asked.id)
        found = await self.cache.lookup(asked, who, seen)
        if isinstance(found, Miss):
            self.cache.store(found, answer or Given(), seen)
            await self.catch_up()
        return seen

    async def catch_up(self) -> None:
        """Wait until all that this worker stored is on the log, and it has handled all that is there."""
        await self.cache.deliver()
        length = await self._state.call("XLEN", self._state.key("log", "cache"))
        await until(lambda: self._log.stats()["handled"] >= length)

    async def text(self, asked: CompletionRequest, who: Tenant) -> str | None:
        """The cached answer's text, or None."""
        found = await self.cache.lookup(asked, who, record(who))
        return found.answer.delivered_text() if isinstance(found, Hit) else None


@pytest_asyncio.fixture
async def make_worker(state: State) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as exits:

        async def make(embedder: Any = None, state: State = state, **options: Any) -> Worker:
            log = IndexLog(state, "cache")
            cache = Cache(state, log, embedder, **options)
            exits.push_async_callback(cache.aclose)
            await cache.open()
            cache.begin_by_meaning()
            if embedder is not None and embedder.ready:
                await until(lambda: bool(cache.stats()["semantic_ready"]))
            return Worker(cache, state, log)

        yield make


@pytest_asyncio.fixture
async def worker(make_worker: Callable[..., Any]) -> Worker:
    """Exact and semantic, with the embedder that needs no model."""
    made: Worker = await make_worker(FakeEmbedder())
    return made
