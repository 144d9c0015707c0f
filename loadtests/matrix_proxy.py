"""A line to a server that can be made slow or made to answer for it, a process of its own.

`python -m loadtests.matrix_proxy TARGET` (`HOST:PORT` or a unix socket's path) prints its port, reads one JSON object a
line and says when it is obeyed: `{"delay_s": 0.6}` waits before every piece in either direction, `{"answer": "HTTP/1.1
429 …"}` is said instead of asking the target.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import orjson
import uvloop

from gateway.runtime.tasks import Tasks

PIECE = 65536


@dataclass(slots=True)
class Manner:
    """How it behaves now; open connections heed it too."""

    delay_s: float = 0.0
    answer: str = ""


class Proxy:
    def __init__(self, target: str) -> None:
        self._target = target
        self.manner = Manner()
        self._tasks = Tasks()

    async def serve(self) -> None:
        """Until standard input ends."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            self.manner = Manner(**orjson.loads(line))
            print("so be it", flush=True)
        server.close()
        await self._tasks.aclose()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.manner.answer:
                await self._answer(reader, writer)
            else:
                await self._pass_on(reader, writer)
        except OSError:
            pass  # whoever hung up knows
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(PIECE)
        writer.write(self.manner.answer.encode())
        await writer.drain()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await self._dial()
        try:
            back = self._tasks.spawn(self._pump(there, writer), "back")
            await self._pump(reader, out, writer)
            await back
        finally:
            out.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, colon, port = self._target.rpartition(":")
        if colon:
            return await asyncio.open_connection(host, int(port))
        return await asyncio.open_unix_connection(self._target)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asker: asyncio.StreamWriter | None = None
    ) -> None:
        """Until either side ends. `asker` gets the answer that is given instead."""
        try:
            while data := await source.read(PIECE):
                if self.manner.delay_s:
                    await asyncio.sleep(self.manner.delay_s)
                if asker and self.manner.answer:
                    asker.write(self.manner.answer.encode())
                    await asker.drain()
                    break
                sink.write(data)
                await sink.drain()
        except (OSError, RuntimeError):  # uvloop's word for a connection that closed meanwhile
            pass
        sink.close()


if __name__ == "__main__":
    uvloop.run(Proxy(sys.argv[1]).serve())
