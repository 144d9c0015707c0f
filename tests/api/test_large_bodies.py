"""Work on large bodies is done in a thread, not on the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from gateway.api.idempotency.idempotency import Idempotency
from gateway.api.routes.inference import Inference
from gateway.dialects.requests.known_bodies import KnownBodies
from gateway.runtime.off_loop import LARGE_BYTES, OffLoop, P, T
from gateway.settings.gateway import RequestLimits
from gateway.state.redis.connection import State
from tests.api.conftest import JSON, Api
from tests.fakes.client import Client


class Noting(OffLoop):
    """Runs work in a thread, and notes its names."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    async def run(self, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        self.names.append(work.__name__)
        return await super().run(work, *args, **more)

    def take(self) -> list[str]:
        names = [name for name in self.names if name in ("locate", "parse", "<lambda>")]
        self.names.clear()
        return names


@pytest.fixture
async def inference(api: Api, state: State) -> AsyncIterator[Inference]:
    idempotency = Idempotency(state, patience_s=5)
    inference = api.make_inference(idempotency=idempotency, limits=RequestLimits())
    yield inference
    await idempotency.aclose()


def conversation(size: int, *more: str, **fields: Any) -> bytes:
    texts = ["word " * (size // 50)] * 10 + list(more)
    messages = [{"role": "user", "content": f"{number} {text}"} for number, text in enumerate(texts)]
    return orjson.dumps({"model": "small", "messages": messages, **fields})


async def test_the_event_loop_neither_locates_items_nor_parses_many_bytes(api: Api, inference: Inference) -> None:
    off_loop = api.gateway.pipeline.off_loop = Noting()

    async def off(body: bytes) -> list[str]:
        client = await Client(inference, key=api.secrets["search"], body=body, headers=JSON).run()
        assert client.status != 500, client.body
        return off_loop.take()

    large = 2 * LARGE_BYTES
    assert await off(conversation(large)) == ["parse"]
    assert await off(conversation(large, "a")) == ["locate"]
    assert await off(conversation(large, "a", "b")) == []
    assert await off(conversation(large, "a", "b", "new " * (LARGE_BYTES // 10))) == ["<lambda>"]
    escaped = b',"\\u006dessages":[{"role":"user","content":"x"}]}'
    assert await off(conversation(large, "a", "b")[:-1] + escaped) == ["parse"]
    assert await off(conversation(LARGE_BYTES // 4, user="u")) == []
    assert await off(conversation(LARGE_BYTES // 4, "a", user="u")) == ["locate"]
    off_loop.close()


class Bodies(KnownBodies):
    """Notes how many calls of backends are in progress when a body is remembered."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self.calls: list[int] = []
        self._fleet = api.gateway.fleet

    def keep(self, *given: Any) -> None:
        self.calls.append(sum(self._fleet.state(each).in_flight for each in self._fleet.backends))
        super().keep(*given)


async def test_a_body_that_continues_another_is_remembered_while_its_backend_answers(api: Api, state: State) -> None:
    idempotency, bodies = Idempotency(state, patience_s=5), Bodies(api)
    inference = api.make_inference(idempotency=idempotency, limits=RequestLimits(), bodies=bodies)
    for more in ((), ("a",), ("a", "b"), ("a", "b", "c")):
        body = conversation(LARGE_BYTES, *more, stream=True)
        client = await Client(inference, key=api.secrets["search"], body=body, headers=JSON).run()
        assert client.status == 200, client.body
    assert bodies.calls[1:] == [1, 1, 1]
    assert len(bodies) == 1
    await idempotency.aclose()


async def test_a_body_known_in_one_dialect_is_read_anew_in_another(api: Api, inference: Inference) -> None:
    """Both dialects call the conversation `messages`, but only chat allows a message without content."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "word " * LARGE_BYTES},
    ]
    more = [*messages, {"role": "user", "content": "Go on"}]
    bodies = [orjson.dumps({"model": "small", "max_tokens": 5, "messages": each}) for each in (messages, more)]
    for path, status in (("/v1/chat/completions", 200), ("/v1/messages", 400)):
        for body in bodies:
            client = await Client(inference, path, key=api.secrets["search"], body=body, headers=JSON).run()
            assert client.status == status, client.body
    assert b"messages[1].content" in client.body
