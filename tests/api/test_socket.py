"""A session on a socket without a server: its life, its memory, and the end of its worker."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.types import Message

from gateway.api.socket.session import Session, Space
from gateway.api.socket.turn import Turn
from gateway.dialects.clients import CLIENTS
from gateway.dialects.openai_responses.socket import Kept
from gateway.errors import InvalidKey
from gateway.runtime.off_loop import OffLoop
from gateway.runtime.tasks import Tasks
from gateway.settings.gateway import RequestLimits
from tests.support.waiting import until

ENDED = b'data: {"type":"response.completed","response":{"id":"resp_1","output":[]}}\n\n'


class Socket:
    """The server's side of an ASGI socket, with a session that answers at once."""

    def __init__(self, *, space: int = 1000, life_s: float = 60.0, idle_s: float = 60.0) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.bodies: list[dict[str, Any]] = []
        self.leaving, self.space, self.turns = asyncio.Event(), Space(space), Tasks()
        self.valid = self.connected = True
        self.session = Session(
            "/v1/responses",
            [],
            self.incoming.get,
            self._send,
            serve=self._serve,
            admit=self._admit,
            dialect=CLIENTS["openai_responses"].dialect,
            limits=RequestLimits(socket_idle=idle_s),
            leaving=self.leaving,
            turns=self.turns,
            off_loop=OffLoop(),
            space=self.space,
            life_s=life_s,
        )

    async def _send(self, message: Message) -> None:
        if not self.connected:
            raise RuntimeError("closed")
        self.sent.append(message)

    async def _serve(self, turn: Turn) -> None:
        self.bodies.append(orjson.loads(await turn.read(10_000, None)))  # type: ignore[arg-type]  # the body is there
        await turn.end(ENDED)

    async def _admit(self) -> None:
        if not self.valid:
            raise InvalidKey("This key is revoked.")

    def ask(self, **fields: Any) -> None:
        body = {"type": "response.create", "model": "m", "input": "x", **fields}
        self.incoming.put_nowait({"type": "websocket.receive", "text": orjson.dumps(body).decode()})

    @property
    def events(self) -> list[dict[str, Any]]:
        return [orjson.loads(message["text"]) for message in self.sent if message["type"] == "websocket.send"]

    @property
    def closed(self) -> int | None:
        return self.sent[-1]["code"] if self.sent and self.sent[-1]["type"] == "websocket.close" else None


async def test_an_old_socket_is_closed_with_openais_code() -> None:
    socket = Socket(life_s=0.05)
    await asyncio.wait_for(socket.session.run(), 10)
    assert [event["error"]["code"] for event in socket.events] == ["websocket_connection_limit_reached"]
    assert socket.closed == 1000


async def test_a_worker_that_leaves_closes_an_idle_socket() -> None:
    socket = Socket()
    socket.leaving.set()
    await asyncio.wait_for(socket.session.run(), 10)
    assert socket.closed == 1012


async def test_what_is_kept_takes_space_until_the_socket_ends() -> None:
    socket = Socket()
    running = asyncio.create_task(socket.session.run())
    socket.ask()
    await until(lambda: socket.space.left_bytes < 1000)
    left = socket.space.left_bytes
    socket.ask(previous_response_id="resp_1")
    await until(lambda: socket.space.left_bytes < left)
    assert "previous_response_id" not in socket.bodies[-1]
    socket.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await asyncio.wait_for(running, 10)
    assert socket.space.left_bytes == 1000


async def test_without_space_nothing_is_kept() -> None:
    socket = Socket(space=10)
    running = asyncio.create_task(socket.session.run())
    for _ in range(2):
        socket.ask(previous_response_id=None)
        await until(lambda: len(socket.bodies) == len(socket.events) > 0)
    socket.ask(previous_response_id="resp_1")
    await until(lambda: bool(socket.bodies) and socket.bodies[-1].get("previous_response_id") == "resp_1")
    socket.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await asyncio.wait_for(running, 10)
    assert socket.space.take(Kept("r", b"0123456789"))


async def test_a_key_that_ended_closes_the_socket_also_without_an_answer() -> None:
    socket = Socket()
    socket.valid = False
    socket.ask(generate=False)
    await asyncio.wait_for(socket.session.run(), 10)
    assert [event["status"] for event in socket.events] == [401]
    assert socket.closed == 1008


async def test_a_client_that_left_gets_nothing_and_breaks_nothing() -> None:
    socket = Socket()
    socket.connected = False
    socket.ask()
    socket.ask(generate=False)
    socket.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})
    await asyncio.wait_for(socket.session.run(), 10)
    assert socket.sent == []
