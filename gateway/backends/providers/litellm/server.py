"""Litellm's process: `python -m gateway.backends.providers.litellm.server --fd N`.

The process serves chat completions and embeddings in OpenAI's form on the listening socket N. It writes no log, because
litellm's log lines may contain keys and prompts. Results and problems are in its responses.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson
import uvicorn

from gateway.backends.providers.base import PATHS
from gateway.backends.providers.litellm.calls import Failed, Litellm, Reply
from gateway.backends.providers.litellm.protocol import BASE, FAILURE, LOAD_PATH, TIMEOUT

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_PARENT_S = 1.0
"""Seconds between checks whether the parent process still runs."""
_JSON = (b"content-type", b"application/json")


class Server:
    """The ASGI application."""

    def __init__(self, litellm: Litellm) -> None:
        self._litellm = litellm

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await _body(receive)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._answer(scope, body, send))
            watch = group.create_task(_end_with_client(receive, work))
            work.add_done_callback(lambda _: watch.cancel())

    async def _answer(self, scope: Mapping[str, Any], body: bytes, send: Send) -> None:
        path = scope["path"]
        if path == LOAD_PATH:
            problem = await asyncio.to_thread(self._litellm.load, orjson.loads(body)["model"])
            await _respond(send, 400 if problem else 200, problem.encode())
        elif path == PATHS["openai_chat"] or path == PATHS["openai_embeddings"]:
            headers = dict(scope["headers"])
            ask = self._litellm.chat if path == PATHS["openai_chat"] else self._litellm.embed
            reply = await ask(orjson.loads(body), _options(headers))
            await _relay(send, reply)
        else:
            await _respond(send, 200, b"{}")


async def _relay(send: Send, reply: Reply) -> None:
    """Send `reply`. If its stream breaks, return without the end of the body. The connection is then closed, which
    shows the worker that the answer is incomplete."""
    if reply.failure:
        await _respond(send, 502, b"", [(FAILURE, reply.failure.encode())])
    elif reply.chunks is None:
        await _respond(send, reply.status, reply.body, reply.headers)
    else:
        await _stream(send, reply.chunks)


async def _stream(send: Send, chunks: AsyncGenerator[bytes]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": b"data: " + chunk + b"\n\n", "more_body": True})
        except Failed:
            return
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _respond(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes:
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def _end_with_client(receive: Receive, work: asyncio.Task[None]) -> None:
    """Cancel `work` when the worker has closed the connection. This closes the provider's connection too."""
    while (await receive())["type"] != "http.disconnect":
        pass
    work.cancel()


NO_KEY = "none"
"""Sent in place of a key that a backend does not have."""


def _options(headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The arguments for litellm that the worker passes in headers.

    If a backend has its own address and no key, the key is a placeholder. Without the placeholder, litellm would send
    the vendor's key from the environment to that address.
    """
    bearer = headers.get(b"authorization", b"").removeprefix(b"Bearer ").decode()
    return {
        "api_base": headers[BASE].decode() if BASE in headers else None,
        "api_key": bearer or (NO_KEY if BASE in headers else None),
        "timeout": float(headers.get(TIMEOUT, b"600")),
    }


async def _serve(listener: socket.socket, litellm: Litellm) -> None:
    config = uvicorn.Config(
        Server(litellm), log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1,
        timeout_keep_alive=3600,
    )  # fmt: skip
    server, parent = uvicorn.Server(config), os.getppid()

    async def end_with_parent() -> None:
        while os.getppid() == parent:  # noqa: ASYNC110 - the end of a parent sets no event on all systems
            await asyncio.sleep(_PARENT_S)
        server.should_exit = True

    async with asyncio.TaskGroup() as group:
        watch = group.create_task(end_with_parent())
        await server.serve([listener])
        watch.cancel()


def main() -> None:
    """Load litellm and serve until SIGTERM, or until the parent process has ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True)
    listener = socket.socket(fileno=parser.parse_args().fd)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    asyncio.run(_serve(listener, Litellm()))


if __name__ == "__main__":
    main()
