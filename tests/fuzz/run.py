"""A gateway, a provider whose answers are as wrong as wished, and many connections that send what nobody would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Exchange, Provider
from tests.fakes.provider_play import Action, Write
from tests.fakes.provider_script import Reply
from tests.fuzz.cases import request
from tests.fuzz.mutate import spoiled_json

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      window_tokens: 8000, price: {{input: 0.1, output: 0.4}}, timeout: 5s}}
  - {{name: claude, kind: anthropic, base_url: "http://127.0.0.1:{port}", model: scripted-claude, tier: large,
      window_tokens: 8000, price: {{input: 1, output: 4}}, timeout: 5s}}
local_model: {{enabled: false}}
admin_api: true
"""
POLICY = """\
data: {store_prompts: true}
budget: {limit_usd: 1000}
passthrough: [audio, images, moderations, rerank]
"""
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_PATIENCE_S = 20.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class WrongProvider(Provider):
    """Answers as `Provider` does, with `share` of its answers spoiled."""

    def __init__(self, random: Random, share: float, **options: Any) -> None:
        # Neither length nor chunks: whatever comes until the end is the answer.
        super().__init__(default=Reply(text="Four.", framing="eof"), keep=100, **options)
        self._random, self._share = random, share

    def answer(self, exchange: Exchange) -> Iterator[Action]:
        actions = super().answer(exchange)
        return self._spoiled(actions) if self._random.random() < self._share else actions

    def _spoiled(self, actions: Iterator[Action]) -> Iterator[Action]:
        for action in actions:
            if isinstance(action, Write) and self._random.random() < 0.5:
                head, end, body = (
                    action.data.rpartition(b"\r\n\r\n") if b"HTTP/1.1" in action.data else (b"", b"", action.data)
                )
                yield replace(action, data=head + end + spoiled_json(self._random, body))
            else:
                yield action


@dataclass
class Found:
    """What came of it."""

    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Requests that got a 500, each with its answer."""

    @property
    def requests(self) -> int:
        return self.statuses.total()


async def send(port: int, sent: bytes) -> bytes:
    """All that comes back until the gateway closes; a connection that stays open is closed from here after a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        try:
            async with asyncio.timeout(1.0):
                return await reader.read()
        except TimeoutError:  # it waits for more
            writer.write_eof()
            async with asyncio.timeout(_PATIENCE_S):
                return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def fuzz(gateway: GatewayProcess, key: str, seed: int, *, seconds: float, at_once: int, found: Found) -> None:
    """Send for so long, over so many connections at a time. Raises TimeoutError when an answer never ends."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds

    async def client(number: int) -> None:
        random = Random(f"{seed}-{number}")
        while loop.time() < ends and len(found.failures) < 20:
            sent = request(random, key)
            heard = await send(gateway.port, sent)
            status = _STATUS.match(heard)
            found.statuses[status[1].decode() if status else "none"] += 1
            if status and status[1] == b"500":
                found.failures.append((sent, heard))

    async with asyncio.TaskGroup() as clients:
        for number in range(at_once):
            clients.create_task(client(number))


def memory(gateway: GatewayProcess) -> int:
    """Resident bytes of all processes of the gateway."""
    assert gateway.process is not None
    total = 0
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (each / "stat").read_text().rpartition(")")[2].split()
            if int(words[3]) == gateway.process.pid:
                total += int((each / "statm").read_text().split()[1]) * _PAGE_BYTES
    return total
