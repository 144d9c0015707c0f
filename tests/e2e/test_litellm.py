"""Litellm's process beside the workers: its life, its money, its keys."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest

from loadtests.ports import free_port
from tests.e2e.conftest import client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.gemini import Gemini
from tests.fakes.provider import Provider
from tests.support.gateway import eventually
from tests.support.waiting import until

pytestmark = [pytest.mark.extras, pytest.mark.heavy, pytest.mark.timeout(180)]

KEY = "sk-of-the-provider-0123456789"
CONFIG = """\
backends:
  - {{name: gem, kind: litellm, base_url: "{gemini}", api_key: env:GEM_KEY, model: gemini/gemini-2.5-flash,
      price: {{input: 1, output: 2}}, first_byte_timeout: 60s}}
  - {{name: vectors, kind: litellm, base_url: "{openai}", api_key: env:GEM_KEY, model: hosted_vllm/m,
      price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    return free_port(), free_port()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: tuple[int, int]) -> Iterator[GatewayProcess]:
    gemini, other = (f"http://127.0.0.1:{port}" for port in ports)
    config = CONFIG.format(gemini=gemini, openai=f"{other}/v1")
    home, policy = tmp_path_factory.mktemp("litellm") / "home", {"t": "cache: {enabled: false}\n"}
    with GatewayProcess(home, config, policy, {"GEM_KEY": KEY}, workers=2) as process:
        yield process


@pytest.fixture
async def gemini(ports: tuple[int, int]) -> AsyncIterator[Gemini]:
    server = Gemini()
    server.port = ports[0]
    async with server:
        yield server


def rows(gateway: GatewayProcess) -> list[tuple[str, int, int]]:
    with closing(sqlite3.connect(gateway.home / "data" / "ledger.sqlite")) as link:
        asked = "SELECT outcome, output_tokens, cost_pico FROM ledger WHERE backend = 'gem' ORDER BY rowid"
        return [tuple(row) for row in link.execute(asked)]


def pss_mib(pid: int) -> float:
    """The memory of a process, of shared pages its share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


async def say(gateway: GatewayProcess, text: str) -> str:
    async with client(gateway, await gateway.key("t")) as sdk:
        messages: list[Any] = [{"role": "user", "content": text}]
        answer = await sdk.chat.completions.create(model="gem", messages=messages)
        return answer.choices[0].message.content or ""


async def test_one_process_of_its_own_serves_all_workers_and_has_litellms_memory(
    gateway: GatewayProcess, gemini: Gemini
) -> None:
    assert await say(gateway, "hi") == "Hello from Gemini"
    assert gemini.headers[-1]["x-goog-api-key"] == KEY
    process = gateway.facts["litellm"]["pid"]
    assert max(map(pss_mib, gateway.facts["workers"])) < pss_mib(process) / 2
    assert Path(f"/proc/{process}/status").read_text().count(f"PPid:\t{gateway.facts['pid']}\n") == 1
    socket = gateway.home / "data" / "litellm.sock"
    assert socket.stat().st_mode & 0o077 == 0


async def test_a_process_killed_in_a_stream_costs_what_arrived_once_and_comes_back(
    gateway: GatewayProcess, gemini: Gemini
) -> None:
    assert await say(gateway, "hi") == "Hello from Gemini"
    known = len(await eventually(lambda: asyncio.to_thread(rows, gateway), bool))
    killed, words = gateway.facts["litellm"]["pid"], 0
    async with client(gateway, await gateway.key("t")) as sdk:
        messages: list[Any] = [{"role": "user", "content": "drip"}]
        stream = await sdk.chat.completions.create(model="gem", messages=messages, stream=True)

        async def listen() -> None:
            nonlocal words
            async for chunk in stream:
                words += sum(bool(choice.delta.content) for choice in chunk.choices)
                if words == 20:
                    os.kill(killed, signal.SIGKILL)

        with pytest.raises(openai.APIError, match="gem"):
            await listen()
    assert await say(gateway, "hi again") == "Hello from Gemini"  # waits in the socket's queue
    await until(lambda: gateway.facts["litellm"]["pid"] not in (None, killed))
    found = await eventually(lambda: asyncio.to_thread(rows, gateway), lambda found: len(found) >= known + 2)
    assert len(found) == known + 2
    (outcome, output_tokens, cost), (after, _, _) = found[-2:]
    assert outcome != "ok"
    assert words <= output_tokens <= words * 1.3 + 5
    assert cost >= output_tokens * 2_000_000
    assert after == "ok"


async def test_embeddings_are_served_in_both_encodings(gateway: GatewayProcess, ports: tuple[int, int]) -> None:
    provider = Provider()
    provider.port = ports[1]
    async with provider, client(gateway, await gateway.key("t")) as sdk:
        packed = await sdk.embeddings.create(model="vectors", input=["a", "b"])
        plain = await sdk.embeddings.create(model="vectors", input=["a", "b"], encoding_format="float")
    assert [len(each.embedding) for each in plain.data] == [8, 8]
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, rel=1e-5)


async def test_no_log_line_has_the_providers_key(gateway: GatewayProcess, gemini: Gemini) -> None:
    with pytest.raises(openai.APIError):
        await say(gateway, "fail 401")
    with pytest.raises(openai.APIError):
        await say(gateway, "fail 400")
    assert KEY not in gateway.log
    assert KEY not in Path(f"/proc/{gateway.facts['litellm']['pid']}/cmdline").read_text()


async def test_without_such_a_backend_no_process_starts(tmp_path: Path) -> None:
    config = 'backends: [{name: m, kind: openai, base_url: "http://127.0.0.1:1/v1", model: m}]\n'
    with GatewayProcess(tmp_path / "home", config + "local_model: {enabled: false}\n") as process:
        assert process.facts["litellm"] == {"pid": None}


async def test_a_worker_grows_by_less_than_10_mib(
    gateway: GatewayProcess, gemini: Gemini, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with Provider() as server:
        plain = "".join(
            f"  - {{name: {name}, kind: openai, base_url: {server.url!r}, model: m, price: {{input: 1, output: 2}}}}\n"
            for name in ("gem", "vectors")
        )
        config, policy = f"backends:\n{plain}local_model: {{enabled: false}}\n", {"t": "cache: {enabled: false}\n"}
        other = GatewayProcess(tmp_path_factory.mktemp("plain") / "home", config, policy, workers=2)
        await asyncio.to_thread(other.start)
        try:
            for each in (gateway, other):
                for number in range(8):
                    await say(each, f"hello {number}")
            sizes = [max(map(pss_mib, each.facts["workers"])) for each in (gateway, other)]
        finally:
            await asyncio.to_thread(other.stop)
    assert sizes[0] - sizes[1] < 10, sizes
