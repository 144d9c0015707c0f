"""Very many streams at once, and clients that do not read theirs, against the real process."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from gateway.supervisor.runtime_dir import lift_file_limit
from tests.e2e.gateway_process import REPOSITORY, GatewayProcess
from tests.fakes.provider import Provider, Raw
from tests.support.gateway import usage_total
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "{url}", model: scripted-small, tier: small, window_tokens: 8000,
      price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
telemetry: {{access_log: false}}
requests: {{stall: {stall}, lag: {lag}}}
"""
STREAMS, TOKENS, DRIP_S = 1000, 12, 0.7
MIB = 2**20


def started(home: Path, url: str, *, stall: str = "60s", lag: str = "10s") -> GatewayProcess:
    process = GatewayProcess(home, CONFIG.format(url=url, stall=stall, lag=lag), {"many": "cache: {enabled: false}\n"})
    process.start()
    return process


def resident(pid: int) -> int:
    """Bytes of memory."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * 4096


def asking(key: str, **more: Any) -> bytes:
    body = orjson.dumps({"model": "small", "messages": [{"role": "user", "content": "hello"}], "stream": True, **more})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {key}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
def provider_url() -> Iterator[str]:
    """A provider in a process of its own, whose every answer is paced."""
    words = [sys.executable, "-m", "tests.fakes.provider", "--tokens", str(TOKENS), "--drip-ms", str(DRIP_S * 1000)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


class Crowd:
    """Clients that read their streams side by side."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def read(self, port: int, request: bytes) -> bytes:
        """One whole answer, its framing included."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        received = await reader.read(65536)
        self.now += 1
        self.most = max(self.most, self.now)
        while not received.endswith(b"0\r\n\r\n") and (more := await reader.read(65536)):
            received += more
        self.now -= 1
        writer.close()
        return received


async def test_a_thousand_streams_run_at_once_on_one_worker(tmp_path: Path, provider_url: str) -> None:
    lift_file_limit()
    gateway = await asyncio.to_thread(started, tmp_path / "home", provider_url)
    try:
        key = await gateway.key("many")
        crowd = Crowd()
        answers = await asyncio.gather(*(crowd.read(gateway.port, asking(key)) for _ in range(STREAMS)))
        assert crowd.most > STREAMS / 2, "they did not run side by side"
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]
            assert b"data: [DONE]\n\n" in answer
            said = [orjson.loads(line[6:]) for line in answer.split(b"\n") if line.startswith(b"data: {")]
            text = "".join(one["choices"][0]["delta"].get("content") or "" for one in said if one["choices"])
            assert text.split() == [f"t{number}" for number in range(TOKENS)]
        total = await usage_total(gateway, "many", attempts=STREAMS)
        assert (total["attempts"], total["output_tokens"]) == (STREAMS, STREAMS * TOKENS)
    finally:
        assert await asyncio.to_thread(gateway.stop) == 0


def pouring(size: int) -> Raw:
    """A stream of `size` bytes, as fast as they are taken."""
    text = "word " * 3000
    delta = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    event = b"data: " + orjson.dumps({"id": "c", "object": "chat.completion.chunk", "model": "m", **delta}) + b"\n\n"
    chunk = b"%x\r\n%b\r\n" % (len(event), event)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return Raw((head, *[chunk] * (size // len(chunk))), "hang")


async def test_a_client_that_stops_reading_costs_little_memory_and_is_billed_for_what_went_its_way(
    tmp_path: Path,
) -> None:
    async with Provider() as provider:
        gateway = await asyncio.to_thread(started, tmp_path / "home", provider.url, stall="2s")
        try:
            key = await gateway.key("many")
            headers = {"authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(
                timeout=30, base_url=gateway.base, headers=headers
            ) as client:  # all that loads late
                body = {"model": "small", "messages": [{"role": "user", "content": "hello"}], "stream": True}
                assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            (worker,) = gateway.facts["workers"]
            before = resident(worker)
            provider.script(pouring(50 * MIB))
            with socket.socket() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)  # so that the kernel, too, holds little
                sock.connect(("127.0.0.1", gateway.port))
                sock.sendall(asking(key))
                await until(lambda: len(provider.exchanges) == 2 and provider.unsent > 30 * MIB)
                most = 0
                while not provider.last.hung_up:
                    most = max(most, resident(worker) - before)
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(sock.settimeout, 5)
                received = await asyncio.to_thread(drained, sock)
            print(f"the worker grew by {most / MIB:.1f} MiB, {len(received) / MIB:.1f} MiB came through")
            assert most < 8 * MIB
            total = await usage_total(gateway, "many", attempts=2)
            words = received.count(b"word ")
            taken = (50 * MIB - provider.unsent) // 5
            answered = provider.exchanges[0].usage
            assert answered is not None
            assert words <= total["output_tokens"] - answered.output_tokens <= taken * 2
            assert received.count(b"[DONE]") == 0
        finally:
            assert await asyncio.to_thread(gateway.stop) == 0


def drained(sock: socket.socket) -> bytes:
    """What the kernel had taken before the gateway hung up."""
    data = b""
    try:
        while more := sock.recv(MIB):
            data += more
    except ConnectionResetError:
        pass
    return data
