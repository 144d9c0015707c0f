"""A client's connection, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"


class Line:
    """Says exactly what it is told to, and hears one answer at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    def ask(self, body: bytes, *headers: bytes) -> None:
        lines = b"".join(header + b"\r\n" for header in headers)
        self.say(HEAD, lines, b"content-length: %d\r\n\r\n" % len(body), body)

    async def hear(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """One answer, whose body is put together."""
        status, headers = await self.bare()
        async with asyncio.timeout(30):
            if b"content-length" in headers:
                body = await self.reader.readexactly(int(headers[b"content-length"]))
            else:
                assert headers[b"transfer-encoding"] == b"chunked"
                body = b"".join([chunk async for chunk in self.chunks()])
        return status, headers, body

    async def bare(self) -> tuple[int, dict[bytes, bytes]]:
        """A head without a body, or before it."""
        async with asyncio.timeout(30):
            head = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = head[:-4].split(b"\r\n")
        return int(status.split()[1]), dict(line.split(b": ", 1) for line in lines)

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        assert await self.reader.readexactly(2) == b"\r\n"

    async def closed(self) -> bool:
        async with asyncio.timeout(30):
            return await self.reader.read() == b""
