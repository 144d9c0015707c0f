"""A client of an ASGI application without sockets: sends a body in pieces, reads, stalls, hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from starlette.types import ASGIApp, Message

JSON: Mapping[str, str] = {"content-type": "application/json"}


class Client:
    """One request. As with uvicorn, `receive` tells of a disconnect when the client has left *or has its answer*."""

    def __init__(
        self,
        app: ASGIApp,
        path: str = "/v1/chat/completions",
        *,
        method: str = "POST",
        headers: Mapping[str, str] = JSON,
        key: str = "",
        body: bytes | Iterable[bytes] = b"",
        whole: bool = True,
        query: str = "",
    ) -> None:
        """`body` in pieces: one message each. `whole`: False never says that the body has ended."""
        self._app = app
        self._pieces = [body] if isinstance(body, bytes) else list(body)
        self._whole = whole
        self._changed = asyncio.Condition()
        self._gone = self._complete = False
        self.messages: list[Message] = []
        sent = {**headers, **({"authorization": f"Bearer {key}"} if key else {})}
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "scheme": "http",
            "server": ("test", 80),
            "client": ("test", 1),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }

    async def run(self) -> Client:
        """Until the application has returned."""
        await self._app(self.scope, self._receive, self._send)
        return self

    def start(self) -> asyncio.Task[Client]:
        return asyncio.get_running_loop().create_task(self.run())

    async def _receive(self) -> Message:
        if self._pieces:
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces) or not self._whole}
        async with self._changed:
            await self._changed.wait_for(lambda: self._gone or self._complete)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._gone:
            return
        assert not self._complete, f"sent after the end: {message}"
        assert (message["type"] == "http.response.start") == (not self.messages), "a response has one head"
        self.messages.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._complete = True
        async with self._changed:
            self._changed.notify_all()

    async def hang_up(self) -> None:
        self._gone = True
        async with self._changed:
            self._changed.notify_all()

    async def until(self, pieces: int) -> None:
        """Wait for so many messages."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: len(self.messages) >= pieces)

    @property
    def status(self) -> int:
        status: int = self.messages[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def complete(self) -> bool:
        return self._complete

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, in OpenAI's shape."""
        found: dict[str, Any] = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return found


class Lifespan:
    """An ASGI application, started and ended as a server does it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._stop = asyncio.Event()
        self._started = asyncio.Event()
        self._said: list[str] = []

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, self._receive, self._send)  # type: ignore[arg-type]
        )
        async with asyncio.timeout(30):
            await self._started.wait()
        assert self._said == ["lifespan.startup.complete"]

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        async with asyncio.timeout(30):
            await self._task
        assert self._said[-1] == "lifespan.shutdown.complete"

    async def _receive(self) -> dict[str, str]:
        if not self._said:
            return {"type": "lifespan.startup"}
        await self._stop.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Any) -> None:
        self._said.append(message["type"])
        self._started.set()
