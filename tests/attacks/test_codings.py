"""What one ordinary key, or a hostile provider, can make the gateway compute with bodies in a content coding."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import brotli
import httpx
import pytest
import zstandard

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Raw
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # a process starts, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""
CHAT, COUNT, FILES = "/v1/chat/completions", "/v1/messages/count_tokens", "/v1/files"
ALLOWED_S = 2.0
"""CPU time of all processes of the gateway for one body."""
PATIENCE_S = 60.0
SIZE = 8 * 2**20
MEMBER = gzip.compress(b"", mtime=0)
FRAME = zstandard.compress(b"")


def empty_blocks(size: int) -> bytes:
    """A raw deflate stream of blocks that hold nothing but the description of a Huffman code, which is to be built."""
    bits: list[int] = []
    for value, width in (
        (0, 1), (2, 2), (0, 5), (0, 5), (14, 4),  # not the last; dynamic; 257 + 1 codes; 18 lengths follow
        *((int(symbol in (1, 18)), 3) for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)),
        (1, 1), (127, 7), (1, 1), (107, 7), (0, 1), (0, 1),  # 138 and 118 symbols without a code, two of one bit
        (0, 1),  # the block's end
    ):  # fmt: skip
        bits += (value >> place & 1 for place in range(width))
    bits *= 8  # whole bytes
    octets = (sum(bit << place for place, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8))
    block = bytes(octets)
    return block * (size // len(block)) + b"\x01\x00\x00\xff\xff"


BODIES: dict[str, Callable[[], tuple[str, bytes]]] = {
    "empty gzip members": lambda: ("gzip", MEMBER * (SIZE // len(MEMBER))),
    "empty gzip members in one that holds them": lambda: ("gzip, gzip", gzip.compress(MEMBER * (SIZE // 2 // 20))),
    "four codings": lambda: ("gzip, gzip, gzip, gzip", gzip.compress(gzip.compress(gzip.compress(MEMBER * 200_000)))),
    "gzip in zstd": lambda: ("gzip, zstd", zstandard.compress(MEMBER * (SIZE // 2 // 20))),
    "gzip members of a byte each": lambda: ("gzip", gzip.compress(b" ", mtime=0) * (SIZE // 21)),
    "a gzip of zeros": lambda: ("gzip", gzip.compress(bytes(2**28))),
    "deflate blocks of nothing": lambda: ("deflate", empty_blocks(19 * 2**20)),
    "empty zstd frames": lambda: ("zstd", FRAME * (SIZE // len(FRAME))),
    "zstd frames to skip": lambda: ("zstd", struct.pack("<II", 0x184D2A50, 0) * (SIZE // 8)),
    "a zstd of zeros": lambda: ("zstd", zstandard.compress(bytes(2**28))),
    "empty brotli blocks": lambda: ("br", b"\x0c" + b"\x06" * SIZE),
    "a brotli of zeros": lambda: ("br", brotli.compress(bytes(2**28), quality=9)),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path_factory.mktemp("codings") / "home", CONFIG.format(port=port), {"one": ""})
    with process:
        yield process


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {await gateway.key('one')}", "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=PATIENCE_S) as client:
        yield client


def cpu_s(gateway: GatewayProcess) -> float:
    """Of all processes of the gateway, so far."""
    tree, ticks = {gateway.facts["pid"]}, 0
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        with contextlib.suppress(OSError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) in tree or int(folder.name) in tree:
                tree.add(int(folder.name))
                ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def rested(gateway: GatewayProcess) -> float:
    """The CPU time when the gateway has nothing left to do."""

    async def at_rest() -> float | None:
        before = cpu_s(gateway)
        await asyncio.sleep(0.5)  # CPU time of half a second
        now = cpu_s(gateway)
        return now if now - before < 0.1 else None

    return await until(at_rest, PATIENCE_S)


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_in_any_coding_costs_no_more_than_two_seconds(
    gateway: GatewayProcess, http: httpx.AsyncClient, name: str
) -> None:
    coding, body = BODIES[name]()
    before = await rested(gateway)
    answer = await http.post(CHAT, content=body, headers={"content-encoding": coding})
    assert answer.status_code in (400, 413, 415), answer.text[:300]
    assert await rested(gateway) - before < ALLOWED_S


@pytest.mark.parametrize(
    ("path", "kind"),
    [(COUNT, "application/json"), (FILES, "multipart/form-data; boundary=x"), ("/v1/batches", "application/json")],
)
@pytest.mark.parametrize(
    "name", ["empty gzip members", "empty zstd frames", "empty gzip members in one that holds them"]
)
async def test_no_other_route_decodes_what_inference_refuses(
    gateway: GatewayProcess, http: httpx.AsyncClient, path: str, kind: str, name: str
) -> None:
    coding, body = BODIES[name]()
    before = await rested(gateway)
    answer = await http.post(path, content=body, headers={"content-encoding": coding, "content-type": kind})
    assert answer.status_code in (400, 413, 415), answer.text[:300]
    assert await rested(gateway) - before < ALLOWED_S


async def test_health_answers_while_many_bodies_are_decoded(gateway: GatewayProcess, http: httpx.AsyncClient) -> None:
    coding, body = BODIES["deflate blocks of nothing"]()
    _, quick = BODIES["empty gzip members"]()
    work = [
        asyncio.create_task(http.post(CHAT, content=data, headers={"content-encoding": name}))
        for name, data in [(coding, body), ("gzip", quick)] * 8
    ]
    while not all(task.done() for task in work):
        assert (await http.get("/health")).status_code == 200
    assert {task.result().status_code for task in work} == {400}
    await rested(gateway)


async def test_decoding_ends_when_the_client_leaves(gateway: GatewayProcess, http: httpx.AsyncClient) -> None:
    coding, body = BODIES["deflate blocks of nothing"]()
    before = await rested(gateway)
    for _ in range(8):
        async with httpx.AsyncClient(timeout=30, base_url=gateway.base, headers=http.headers) as leaving:
            sending = asyncio.create_task(leaving.post(CHAT, content=body, headers={"content-encoding": coding}))
            await asyncio.wait([sending], timeout=0.3)  # by then it has been sent
            sending.cancel()
    assert await rested(gateway) - before < 8 * ALLOWED_S / 2


@pytest.mark.parametrize(
    "name", ["empty gzip members", "empty gzip members in one that holds them", "empty zstd frames"]
)
async def test_a_provider_costs_no_more_with_its_answers(
    gateway: GatewayProcess, http: httpx.AsyncClient, port: int, name: str
) -> None:
    coding, body = BODIES[name]()
    before = await rested(gateway)
    async with Provider(port=port) as provider:
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n"
        )
        for _ in range(8):  # as often as it may be tried
            provider.script(Raw((head % (coding.encode(), len(body)) + body,)))
        message = {"role": "user", "content": name}
        answer = await http.post(CHAT, json={"model": "small", "messages": [message]})
        assert answer.status_code in (502, 503), answer.text[:300]
    assert await rested(gateway) - before < ALLOWED_S
