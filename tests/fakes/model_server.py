"""A server whose GETs are scripted: status and text by path, and what it was asked."""

from __future__ import annotations

import asyncio
from typing import Self


class ModelServer:
    """`pages`: path → status and body; others are 404. `hang`: it accepts and says nothing."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, str]] = {}
        self.asked: list[tuple[str, str]] = []
        """Path and `authorization`."""
        self.hang = False
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.refuse()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """From now on connections are refused."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                path, key = line.split()[1].decode(), ""
                while (header := await reader.readline()).strip():
                    name, _, value = header.decode("latin-1").partition(":")
                    key = value.strip() if name.lower() == "authorization" else key
                self.asked.append((path, key))
                if self.hang:
                    await asyncio.sleep(3600)
                status, body = self.pages.get(path, (404, "no such page"))
                head = f"HTTP/1.1 {status} Scripted\r\ncontent-length: {len(body.encode())}\r\n"
                if status in (301, 302, 307):
                    head += f"location: {body}\r\n"
                writer.write(f"{head}\r\n{body}".encode())
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()
