"""What one ordinary key can do with the body of a request: many items, and long strings where short ones are meant."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.requests import chat_body

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      capabilities: [tools, vision, json_schema], window_tokens: 100000000, price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
MANY = 200_000
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("bodies") / "home", CONFIG.format(port=port), {"one": "", "other": ""}
    ) as process:
        yield process


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    key = await gateway.key("one")
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "a"}] * MANY}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * MANY}]}),
        (CHAT, {**HELLO, "tools": [TOOL] * (MANY // 3)}),
        (CHAT, {**HELLO, "stop": ["a"] * (MANY * 10)}),
        (CHAT, {**HELLO, "logit_bias": {str(number): 1 for number in range(MANY * 2)}}),
        (CHAT, {**HELLO, "extra": [[[[[[]]]]]] * (MANY // 6)}),
        (RESPONSES, {"input": [{"role": "user", "content": "a"}] * MANY}),
        (RESPONSES, {"input": "hello", "tools": [{"type": "function", "name": "f"}] * MANY}),
        (MESSAGES, {**HELLO, "max_tokens": 5, "system": [{"type": "text", "text": "a"}] * MANY}),
        (MESSAGES + "/count_tokens", {"messages": [{"role": "user", "content": "a"}] * MANY}),
        ("/v1/embeddings", {"input": [[1]] * MANY}),
        ("/v1/completions", {"prompt": [1] * (MANY * 10)}),
    ],
)
async def test_a_body_of_more_items_than_the_operator_allows_is_refused_unparsed(
    http: httpx.AsyncClient, path: str, fields: dict[str, Any]
) -> None:
    answer = await http.post(path, content=orjson.dumps({"model": "small", **fields}))
    assert answer.status_code == 413, answer.text[:300]
    assert "requests.max_items" in answer.json()["error"]["message"]


@pytest.mark.parametrize("text", ['[{"a": 1, "b": [2, 3]}], ' * 20_000, '\\"[{,:\\\\' * 60_000])
async def test_what_stands_in_a_text_is_no_item(http: httpx.AsyncClient, provider: Provider, text: str) -> None:
    body = chat_body(text, model="small")
    answer = await http.post(CHAT, content=body)
    assert answer.status_code == 200, answer.text[:300]
    assert provider.exchanges[-1].json["messages"][0]["content"] == text


async def test_large_bodies_that_are_allowed_are_answered_side_by_side(
    http: httpx.AsyncClient, provider: Provider
) -> None:
    turns = [{"role": "user", "content": "and?"}, {"role": "assistant", "content": "so"}] * 4_000
    bodies = [orjson.dumps({"model": "small", "messages": turns, "seed": seed}) for seed in range(8)]
    answers = await asyncio.gather(*(http.post(CHAT, content=body) for body in bodies))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert sorted(each.json["seed"] for each in provider.exchanges) == list(range(8))


LONG = 15 * 2**20
"""Characters."""
ROUNDS = 10
"""Eight strings that were kept would be more than is allowed to stay."""


def resident_bytes(gateway: GatewayProcess) -> int:
    """Of all processes of the gateway."""
    tree, found = {gateway.facts["pid"]}, 0
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in tree or int(folder.name) in tree:
                tree.add(int(folder.name))
                found += int((folder / "statm").read_text().split()[1]) * resource.getpagesize()
    return found


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "m"},
        {"user": "u"},
        {"safety_identifier": "s"},
        {"metadata": {"user_id": "m"}},
        {"prompt_cache_key": "p"},
        {"service_tier": "t"},
        {"messages": [{"role": "r", "content": "hello"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "x"}]}]},
        {"tools": [{"type": "function", "function": {"name": "n"}}], "tool_choice": "c"},
    ],
    ids=lambda fields: "+".join(fields),
)
async def test_nothing_keeps_a_long_string_when_its_request_is_over(
    gateway: GatewayProcess, http: httpx.AsyncClient, provider: Provider, fields: dict[str, Any]
) -> None:
    def body(number: int) -> bytes:
        return orjson.dumps({"model": "small", **HELLO, **lengthened(fields, f"{number:04}" * (LONG // 4))})

    for number in range(2):  # what one such request needs while it is answered
        await http.post(CHAT, content=body(number))
    before = resident_bytes(gateway)
    for number in range(2, ROUNDS):
        provider.exchanges.clear()
        answer = await http.post(CHAT, content=body(number))
        assert answer.status_code < 500, answer.text[:300]
        assert len(answer.content) < 16_000
    grown = resident_bytes(gateway) - before
    assert grown < 100 * 2**20
    assert max(map(len, gateway.log.splitlines()), default=0) <= 2048


def lengthened(value: Any, text: str) -> Any:
    """`value` with `text` after every string of one letter."""
    if isinstance(value, dict):
        return {name: lengthened(each, text) for name, each in value.items()}
    if isinstance(value, list):
        return [lengthened(each, text) for each in value]
    return value + text if isinstance(value, str) and len(value) == 1 else value
