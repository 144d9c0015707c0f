"""Equal requests at one time, against two real workers: one call, one bill, and nobody suffers from another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import create_engine, select

from gateway.runtime.tasks import Tasks
from gateway.state.sql.tables import ledger
from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
telemetry: {{access_log: false}}
backends:
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      window_tokens: 128000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
POLICY = "cache: {semantic: {enabled: false}}\n"
CLIENTS = 50


@dataclass
class Client:
    """One connection, so one worker or the other."""

    http: httpx.AsyncClient
    url: str
    headers: dict[str, str]
    data: bytearray = field(default_factory=bytearray)
    cache: str = ""
    status: int = 0

    async def ask(self, body: dict[str, Any]) -> bytes:
        async with self.http.stream("POST", self.url, json=body, headers=self.headers) as reply:
            self.status, self.cache = reply.status_code, reply.headers["x-thriftgate-cache"]
            async for piece in reply.aiter_raw():
                self.data += piece
        return bytes(self.data)


@dataclass
class Scene:
    gateway: GatewayProcess
    provider: Provider
    key: str
    tasks: Tasks
    exits: AsyncExitStack

    async def client(self) -> Client:
        http = await self.exits.enter_async_context(httpx.AsyncClient(timeout=60))
        await http.get(f"{self.gateway.base}/health/live")  # connected from here on
        url = f"{self.gateway.base}/v1/chat/completions"
        return Client(http, url, {"authorization": f"Bearer {self.key}"})

    async def rows(self) -> list[dict[str, Any]]:
        """The ledger, which the writer has drained when the gateway ended."""
        assert await asyncio.to_thread(self.gateway.stop) == 0

        def read() -> list[dict[str, Any]]:
            engine = create_engine(f"sqlite:///{self.gateway.home / 'data' / 'ledger.sqlite'}")
            with engine.connect() as connection:
                found = [dict(row) for row in connection.execute(select(ledger)).mappings()]
            engine.dispose()
            return found

        return await asyncio.to_thread(read)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    port = free_port()
    gateway = GatewayProcess(tmp_path / "home", CONFIG.format(port=port), {"busy": POLICY}, workers=2)
    await asyncio.to_thread(gateway.start)
    tasks = Tasks()
    try:
        await until(lambda: len(gateway.facts["workers"]) == 2)
        async with Provider(port=port) as provider, AsyncExitStack() as exits:
            yield Scene(gateway, provider, await gateway.key("busy"), tasks, exits)
            await tasks.aclose()
    finally:
        if gateway.process and gateway.process.poll() is None:
            await asyncio.to_thread(gateway.stop)


def body(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "large", "messages": [{"role": "user", "content": text}], "stream": True, **fields}


def text(answer: bytes) -> str:
    chunks = [orjson.loads(event[6:]) for event in answer.split(b"\n\n")[:-2]]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def bill(row: dict[str, Any]) -> int:
    return int(row["input_tokens"]) * 1_000_000 + int(row["output_tokens"]) * 2_000_000


async def test_fifty_equal_streams_at_two_workers_are_one_call_and_one_bill(scene: Scene) -> None:
    scene.provider.script(Reply(tokens=40, drip_s=0.05))
    clients = [await scene.client() for _ in range(CLIENTS)]
    answers = await asyncio.gather(*(client.ask(body()) for client in clients))
    assert len({text(answer) for answer in answers}) == 1
    assert len({answer for answer in answers if answer.count(b"data: ") > 40}) == 1  # later: fewer, longer steps
    assert all(answer.endswith(b"data: [DONE]\n\n") for answer in answers)
    assert len(scene.provider.exchanges) == 1
    counted = Counter(client.cache for client in clients)
    assert (counted["miss"], counted["join"] + counted["exact"]) == (1, CLIENTS - 1)  # exact: asked after the end
    assert counted["join"]
    rows = await scene.rows()
    (paid,) = [row for row in rows if row["attempt"]]
    assert (paid["outcome"], paid["output_tokens"], paid["cost_pico"]) == ("ok", 40, bill(paid))
    shared = {(row["cost_pico"], row["saved_pico"]) for row in rows if not row["attempt"]}
    assert (len(rows), shared) == (CLIENTS, {(0, paid["cost_pico"])})
    assert Counter(row["cache"] for row in rows) == counted


async def test_streams_and_whole_answers_of_two_workers_share_a_call(scene: Scene) -> None:
    scene.provider.script(Reply(tokens=30, drip_s=0.02))
    clients = [await scene.client() for _ in range(24)]
    answers = await asyncio.gather(*(client.ask(body(stream=n % 2 == 0)) for n, client in enumerate(clients)))
    assert len(scene.provider.exchanges) == 1
    texts = {orjson.loads(answer)["choices"][0]["message"]["content"] for answer in answers[1::2]}
    assert [text.split() for text in texts] == [[f"t{n}" for n in range(30)]]
    assert all(answer.endswith(b"data: [DONE]\n\n") and b"t29" in answer for answer in answers[::2])


async def test_who_asks_another_worker_right_after_the_end_gets_that_answer_too(scene: Scene) -> None:
    clients = [await scene.client() for _ in range(12)]  # at both workers, unless all twelve coins fall alike
    for number in range(5):
        scene.provider.script(Reply(tokens=30))
        asked = body(f"question {number}")
        for client in clients:
            client.data.clear()
        answers = [await client.ask(asked | {"stream": n % 3 == 0}) for n, client in enumerate(clients)]
        assert len(scene.provider.exchanges) == number + 1
        assert all(b"t29" in answer for answer in answers)
        assert [client.cache for client in clients[:1]] == ["miss"]
        assert {client.cache for client in clients[1:]} <= {"exact", "join"}


async def test_who_pays_hangs_up_and_twenty_others_at_two_workers_get_all_of_it(scene: Scene) -> None:
    scene.provider.script(Reply(tokens=60, drip_s=0.02))
    leader = await scene.client()
    asking = scene.tasks.spawn(leader.ask(body()), "leader")
    await until(lambda: b"t5" in leader.data)
    others = [await scene.client() for _ in range(20)]
    following = [scene.tasks.spawn(client.ask(body()), "follower") for client in others]
    await until(lambda: all(client.data for client in others))
    asking.cancel()
    answers = {await each for each in following}
    assert len(answers) == len(scene.provider.exchanges) == 1
    assert b"t59" in answers.pop()
    paid = [row for row in await scene.rows() if row["attempt"]]
    assert [(row["outcome"], row["cost_pico"]) for row in paid] == [("ok", bill(paid[0]))]


async def test_when_all_hang_up_the_backend_is_left(scene: Scene) -> None:
    scene.provider.script(Reply(tokens=2000, drip_s=0.02))
    clients = [await scene.client() for _ in range(10)]
    asking = [scene.tasks.spawn(client.ask(body()), "client") for client in clients]
    await until(lambda: all(client.data for client in clients))
    for each in asking:
        each.cancel()
    await scene.provider.settled()
    assert scene.provider.last.hung_up
    rows = await scene.rows()
    assert [row["outcome"] for row in rows if row["attempt"]] == ["interrupted"]
    assert {row["outcome"] for row in rows if not row["attempt"]} == {"interrupted"}


async def test_a_backend_that_breaks_midway_is_an_error_for_who_has_bytes_and_another_try_for_who_has_none(
    scene: Scene,
) -> None:
    scene.provider.script(Reply(tokens=300, drip_s=0.03, cut="rst", after=200), Reply(tokens=40, drip_s=0.02))
    streams, plain = [await scene.client() for _ in range(8)], [await scene.client() for _ in range(8)]
    leader = scene.tasks.spawn(streams[0].ask(body()), "leader")
    await until(lambda: b"t3" in streams[0].data)
    following = [scene.tasks.spawn(client.ask(body()), "stream") for client in streams[1:]]
    waiting = [scene.tasks.spawn(client.ask(body(stream=False)), "plain") for client in plain]
    for each in (leader, *following):
        said = await each
        assert b"[DONE]" not in said
        assert b'"error"' in said
    for each in waiting:
        assert orjson.loads(await each)["choices"][0]["message"]["content"].split()[-1] == "t39"
    assert {client.status for client in plain} == {200}
    assert len(scene.provider.exchanges) <= 3  # one more try for all, unless two workers began it in the same moment


async def test_a_backend_that_fails_before_it_answers_fails_who_asked_first_alone(scene: Scene) -> None:
    scene.provider.script(Fail(500, delay_s=0.3), Fail(500), Reply(tokens=40, drip_s=0.02))
    clients = [await scene.client() for _ in range(20)]
    await asyncio.gather(*(client.ask(body()) for client in clients))
    assert Counter(client.status for client in clients) == {200: 19, 502: 1}
    assert len(scene.provider.exchanges) == 3
