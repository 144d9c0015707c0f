"""An SDK's retry neither runs nor bills twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.api.idempotency import idempotency
from gateway.api.idempotency.idempotency import Idempotency
from gateway.api.server.asgi import Headers
from gateway.api.server.caller import Caller
from gateway.errors import DeadlineExceeded, GatewayError, KeyReused
from gateway.state.redis.connection import State
from tests.api.conftest import Api
from tests.fakes.client import Client
from tests.fakes.gateway import tenant
from tests.fakes.provider import Fail, Reply
from tests.support.requests import small_body
from tests.support.waiting import until

KEY = {"idempotency-key": "retry-1"}


async def ask(api: Api, body: bytes = small_body(), **more: Any) -> Client:
    async with asyncio.timeout(30):
        return await api.client(body, headers={**KEY, **more.pop("headers", {})}, **more).run()


# -- through the endpoint ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_asking_again_gets_the_same_answer_and_costs_nothing(api: Api, stream: bool) -> None:
    body = small_body(stream=stream)
    api.gateway.provider.script(Reply(tokens=20, drip_s=0.001))
    first, second = await ask(api, body), await ask(api, body)
    assert first.status == second.status == 200
    assert first.body == second.body
    assert first.complete
    assert second.complete
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["x-request-id"] == first.headers["x-request-id"]
    assert len(api.gateway.provider.exchanges) == 1
    assert len(await api.gateway.rows()) == 1
    assert api.overload.stats()["in_flight"] == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_asking_again_meanwhile_waits_for_the_answer(api: Api, stream: bool) -> None:
    body = small_body(stream=stream)
    api.gateway.provider.script(Reply(tokens=20, delay_s=0.1, drip_s=0.005))
    clients = await asyncio.gather(*[ask(api, body) for _ in range(5)])
    assert len({client.body for client in clients}) == 1
    assert sorted("idempotency-replayed" in client.headers for client in clients) == [False, True, True, True, True]
    assert len(api.gateway.provider.exchanges) == 1
    assert len(await api.gateway.rows()) == 1


async def test_a_stream_is_not_held_back_for_whoever_listens(api: Api) -> None:
    api.gateway.provider.script(Reply(tokens=10, drip_s=0.02))
    client = await ask(api, small_body(stream=True))
    assert len(client.messages) > 8


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_gave_up_finds_its_answer_when_it_asks_again(api: Api, stream: bool) -> None:
    gateway, body = api.gateway, small_body(stream=stream)
    gateway.provider.script(Reply(tokens=20, delay_s=0.1, drip_s=0.005))
    first = api.client(body, headers=KEY)
    serving = first.start()
    await until(lambda: gateway.provider.exchanges)
    await first.hang_up()
    await asyncio.wait_for(serving, 30)
    assert api.overload.stats()["in_flight"] == 1, "it goes on, and counts"
    second = await ask(api, body)
    assert second.status == 200
    assert gateway.provider.last.text_sent
    assert not gateway.provider.last.hung_up
    assert len(gateway.provider.exchanges) == 1
    (row,) = await gateway.rows()
    assert row["outcome"] == "ok"
    await until(lambda: api.overload.stats()["in_flight"] == 0)


async def test_without_a_key_a_client_that_leaves_stops_the_backend(api: Api) -> None:
    gateway = api.gateway
    gateway.provider.script(Reply(delay_s=10))
    client = api.client(small_body())
    serving = client.start()
    await until(lambda: gateway.provider.exchanges)
    await client.hang_up()
    await asyncio.wait_for(serving, 30)
    await until(lambda: gateway.provider.last.hung_up)


async def test_another_request_with_the_same_key_is_refused(api: Api) -> None:
    await ask(api)
    other = await ask(api, small_body("something else"))
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
    assert other.error["param"] == "Idempotency-Key"
    assert other.headers["x-should-retry"] == "false"
    assert len(api.gateway.provider.exchanges) == 1


async def test_another_tenant_or_path_or_key_is_another_request(api: Api) -> None:
    await api.key("colleague")
    answers = [
        await ask(api),
        await ask(api, key="colleague"),
        await ask(api, path="/chat/completions"),
        await ask(api, headers={"idempotency-key": "retry-2"}),
    ]
    assert not any("idempotency-replayed" in client.headers for client in answers)
    assert len(api.gateway.provider.exchanges) == 4


async def test_what_failed_is_tried_again(api: Api) -> None:
    provider = api.gateway.provider
    provider.script(Fail(400), Reply(cut="rst", tokens=9, after=3, drip_s=0.002), Reply())
    assert (await ask(api, small_body(stream=True))).status == 400
    broken = await ask(api, small_body(stream=True))
    assert b"stream_broken" in broken.body
    whole = await ask(api, small_body(stream=True))
    assert whole.body.endswith(b"[DONE]\n\n")
    assert "idempotency-replayed" not in whole.headers
    assert len(provider.exchanges) == 3


@pytest.mark.parametrize("key", ["", "x" * 256, "ü", "\t"])
async def test_a_key_that_is_none_is_a_400(api: Api, key: str) -> None:
    client = await ask(api, headers={"idempotency-key": key})
    assert (client.status, client.error["param"]) == (400, "Idempotency-Key")


async def test_an_answer_is_encoded_for_whoever_wants_it_so(api: Api) -> None:
    api.gateway.provider.script(Reply(tokens=1000))
    first, second = await ask(api), await ask(api, headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in first.headers
    assert second.headers["content-encoding"] == "gzip"


# -- several workers -----------------------------------------------------------------------------------------------


class Asking:
    """A caller that hears the answer."""

    method, path, query = "POST", "/v1/chat/completions", b""

    def __init__(self) -> None:
        self.headers: Headers = []
        self.status = 0
        self.told: Headers = []
        self.body = b""
        self.ended = False

    def listen(self, react: Callable[[], None]) -> None: ...

    def close(self) -> None: ...

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        self.status, self.told, self.body = status, headers, body

    def begin(self, headers: Headers) -> None:
        self.status, self.told = 200, headers

    def put(self, piece: bytes) -> bool:
        self.body += piece
        return False

    async def drain(self) -> None: ...

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        self.body += last
        self.ended = True


class Worker:
    """One worker's idempotency, and what it serves."""

    def __init__(self, state: State, patience_s: float = 5.0) -> None:
        self.idempotency = Idempotency(state, patience_s=patience_s)
        self.served = 0
        self.go = asyncio.Event()
        self.go.set()
        self.answer = (200, b"answer")

    async def serve(self, caller: Caller) -> None:
        self.served += 1
        await self.go.wait()
        await caller.whole(self.answer[0], [(b"x-a", b"\xe9")], self.answer[1])

    async def refuse(self, caller: Caller, error: GatewayError) -> None:
        await caller.whole(error.status, [], error.code.encode())

    async def ask(self, body: bytes = b"question", key: bytes = b"k") -> Asking:
        caller = Asking()
        async with asyncio.timeout(30):
            await self.idempotency.answer(key, body, caller, tenant(), self.serve, self.refuse)  # type: ignore[arg-type]
        return caller


@pytest.fixture
async def workers(state: State) -> AsyncIterator[tuple[Worker, Worker]]:
    both = Worker(state), Worker(state)
    yield both
    for worker in both:
        await worker.idempotency.aclose()


async def test_another_worker_knows_the_answer(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    await one.ask()
    for _ in range(2):
        again = await two.ask()
        assert (again.status, again.body) == (200, b"answer")
        assert again.told == [(b"x-a", b"\xe9"), (b"idempotency-replayed", b"true")]
    assert (one.served, two.served) == (1, 0)


async def test_another_worker_waits_for_the_answer(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    one.go.clear()
    first = asyncio.get_running_loop().create_task(one.ask())
    await until(lambda: one.served)
    second = asyncio.get_running_loop().create_task(two.ask())
    await asyncio.sleep(0.1)
    one.go.set()
    assert (await first).body == (await second).body == b"answer"
    assert (one.served, two.served) == (1, 0)


async def test_another_worker_answers_when_the_first_fails(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    one.answer, two.answer = (502, b"failed"), (200, b"better")
    one.go.clear()
    first = asyncio.get_running_loop().create_task(one.ask())
    await until(lambda: one.served)
    second = asyncio.get_running_loop().create_task(two.ask())
    await asyncio.sleep(0.05)
    one.go.set()
    assert (await first).status == 502
    assert (await second).body == b"better"


async def test_another_worker_answers_when_the_first_dies(
    workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "LEASE_S", 0.3)
    one, two = workers
    one.go.clear()
    first = asyncio.get_running_loop().create_task(one.ask())
    await until(lambda: one.served)
    second = asyncio.get_running_loop().create_task(two.ask())
    await asyncio.sleep(0.6)
    assert two.served == 0, "while it lives it renews its lease"
    await one.idempotency.aclose()
    assert (await second).body == b"answer"
    assert (await first).status == 0, "never answered: its connection breaks"
    assert two.served == 1


async def test_another_worker_tells_another_request_apart(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    await one.ask()
    other = await two.ask(b"another question")
    assert (other.status, other.body) == (422, KeyReused.code.encode())
    assert (await two.ask()).body == b"answer"


async def test_one_that_takes_too_long_is_not_waited_for(state: State) -> None:
    one, two = Worker(state), Worker(state, patience_s=0.1)
    one.go.clear()
    first = asyncio.get_running_loop().create_task(one.ask())
    await until(lambda: one.served)
    assert (await two.ask()).body == DeadlineExceeded.code.encode()
    one.go.set()
    await first
    for worker in (one, two):
        await worker.idempotency.aclose()


async def test_what_breaks_without_an_end_is_played_without_one(workers: tuple[Worker, Worker]) -> None:
    """Sound has no event for an error: the connection breaks, and nobody takes it for whole."""
    one, _ = workers

    async def breaks(caller: Caller) -> None:
        caller.begin([])
        caller.put(b"half")

    one.serve = breaks  # type: ignore[method-assign]
    caller = await one.ask()
    assert (caller.body, caller.ended) == (b"half", False)
    assert not (await one.ask()).ended


async def test_without_the_state_server_requests_are_answered_and_one_worker_still_knows(tmp_path: Any) -> None:
    state = State(f"unix://{tmp_path}/nobody.sock", timeout_s=0.1)
    await state.open()
    worker = Worker(state)
    for _ in range(2):
        assert (await worker.ask()).body == b"answer"
    assert worker.served == 1
    await worker.idempotency.aclose()
    await state.aclose()


async def test_what_is_too_large_is_answered_but_not_kept(
    workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = workers
    one.answer = (200, bytes(idempotency.MOST_ANSWER_BYTES + 1))
    assert len((await one.ask()).body) == idempotency.MOST_ANSWER_BYTES + 1
    assert "idempotency-replayed" not in str((await one.ask()).told)
    assert (await two.ask()).body == b"answer"


async def test_what_is_kept_is_bounded(workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MOST_KEPT_BYTES", 3000)
    monkeypatch.setattr(idempotency, "AT_HAND_BYTES", 2 * (1000 + 2500))
    one, two = workers
    one.answer = (200, bytes(1000))
    for key in (b"1", b"2", b"3"):
        await one.ask(key=key)
    stats = one.idempotency.stats()
    assert stats["at_hand"] == 2
    assert int(stats["kept_bytes"]) <= 3000
    assert len((await two.ask(key=b"3")).body) == 1000
    assert (await two.ask(key=b"1")).body == b"answer", "the oldest had to go"
    await until(lambda: one.idempotency.stats()["open"] == 0)


async def test_the_endpoint_takes_what_another_worker_stored(api: Api, state: State) -> None:
    await ask(api, small_body(stream=True))
    other = Idempotency(state, patience_s=5)
    inference = api.make_inference(idempotency=other)
    again = await ask(replace(api, inference=inference), small_body(stream=True))
    assert again.body.endswith(b"[DONE]\n\n")
    assert again.headers["content-type"].startswith("text/event-stream")
    assert again.headers["idempotency-replayed"] == "true"
    assert len(api.gateway.provider.exchanges) == 1
    await other.aclose()
