"""Ollama's own API behind the whole pipeline: each answer is in the ledger once, whatever becomes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.errors import StreamBroken
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import INPUT, OUTPUT, InProcessGateway, open_gateway
from tests.fakes.ollama import MODEL, Ollama, call, done, line, said, whole
from tests.fakes.scripted import Body, Pieces
from tests.support.pieces import pieces_of
from tests.support.requests import request_in
from tests.support.waiting import until

CLIENTS = (
    *("openai_chat", "anthropic_messages", "openai_responses"),
    *("gemini_generate", "bedrock_converse", "ollama_chat"),
)


BY_PATH = ("gemini_generate", "bedrock_converse")
"""Dialects whose path has the model, and says whether the answer is a stream."""


@pytest.fixture
async def ollama() -> AsyncIterator[Ollama]:
    async with Ollama() as server:
        yield server


@pytest.fixture
async def gateway(ollama: Ollama, state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    price = PriceEntry(input=Decimal(INPUT) / 10**6, output=Decimal(OUTPUT) / 10**6)
    backend = Backend(
        name="o", kind="ollama", base_url=ollama.url, model=MODEL, tier="small", price=price, window_tokens=8000
    )
    async with open_gateway(state, database, tmp_path, more=lambda _: (backend,)) as gateway:
        yield gateway


async def row(gateway: InProcessGateway) -> dict[str, Any]:
    """The only row of the ledger, once nothing is in flight."""
    await until(gateway.quiet)
    (found,) = await gateway.rows()
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
async def test_an_answer_is_booked_once_by_the_servers_counts(
    client: str, stream: bool, gateway: InProcessGateway
) -> None:
    asked = request_in(client, model="o", **({} if client in BY_PATH else {"stream": stream}))
    await gateway.read(replace(asked, model="o", stream=stream, wants_usage=stream))
    booked = await row(gateway)
    assert (booked["outcome"], booked["input_tokens"], booked["output_tokens"]) == ("ok", 14, 4)
    assert booked["cost_pico"] == 14 * INPUT + 4 * OUTPUT


@pytest.mark.parametrize("client", ["openai_chat", "ollama_chat", "openai_responses"])
async def test_a_stream_that_fails_in_the_middle_is_booked_once_by_what_came(
    client: str, gateway: InProcessGateway, ollama: Ollama
) -> None:
    ollama.script(Pieces((line(said("one two three")), line({"error": "CUDA error: out of memory"}))))
    with pytest.raises(StreamBroken, match="CUDA"):
        await gateway.read(request_in(client, model="o", stream=True))
    booked = await row(gateway)
    assert (booked["outcome"], booked["estimated"]) == ("interrupted", True)
    assert booked["input_tokens"] > 0
    assert 0 < booked["output_tokens"] < 10


async def test_a_client_that_hangs_up_is_charged_once_and_the_server_stops(
    gateway: InProcessGateway, ollama: Ollama
) -> None:
    ollama.script(Pieces(tuple(line(said(" and")) for _ in range(2000)), every_s=0.005))
    async with await gateway.serve(request_in("ollama_chat", model="o")) as reply:
        async for _ in pieces_of(reply):
            break
    await until(lambda: ollama.hung_up == 1)
    booked = await row(gateway)
    assert booked["outcome"] == "interrupted"
    assert 0 < booked["output_tokens"] < 200


async def test_calls_come_back_to_an_agent_by_ids_that_the_gateway_made(
    gateway: InProcessGateway, ollama: Ollama
) -> None:
    ollama.script(Body(whole("", tool_calls=[call("look", {"at": 1}), call("look", {"at": 2})])))
    tool = {"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "integer"}}}}
    asked = {"model": "o", "tools": [tool], "max_tokens": 50}
    turn = orjson.loads(await gateway.read(request_in("anthropic_messages", "look twice", **asked)))["content"]
    results = [
        {"type": "tool_result", "tool_use_id": use["id"], "content": f"at {use['input']['at']}"}
        for use in reversed(turn)
    ]
    messages = [
        {"role": "user", "content": "look twice"},
        {"role": "assistant", "content": turn},
        {"role": "user", "content": results},
    ]
    await gateway.read(request_in("anthropic_messages", messages=messages, **asked))
    sent = ollama.asked[-1].body["messages"]
    assert [each["id"] for each in sent[1]["tool_calls"]] == [use["id"] for use in turn]
    assert [(each["tool_name"], each["content"]) for each in sent[2:]] == [("look", "at 2"), ("look", "at 1")]


async def test_a_cached_answer_is_the_same_streamed_and_whole(gateway: InProcessGateway, ollama: Ollama) -> None:
    ollama.script(Pieces((line(said("grüße \u2028")), line(done()))))
    options = {"options": {"temperature": 0, "top_k": 5}}
    await gateway.read(request_in("ollama_chat", model="o", **options))
    await gateway.stored()
    body = orjson.loads(await gateway.read(request_in("ollama_chat", model="o", stream=False, **options)))
    assert (body["message"]["content"], body["eval_count"]) == ("grüße \u2028", 4)
    assert len(ollama.asked) == 1
    await gateway.read(request_in("ollama_chat", model="o", options={"temperature": 0, "top_k": 6}))
    assert len(ollama.asked) == 2, "an option that chat lacks is part of the key"
