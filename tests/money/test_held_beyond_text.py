"""What an answer may cost beyond one text is held for: sound, several images, writes of the prompt cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.dialects.clients import PATHS
from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.record import new_request_id
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BudgetExhausted
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, backend, open_gateway, tenant
from tests.fakes.provider import Provider
from tests.money.reporting import completion, plain_reply, request_for

DEAR_WRITES = PriceEntry(input=Decimal(1), output=Decimal(10), cache_write_5m=Decimal(100))
NINE_WORDS: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}


def more(provider: Provider) -> tuple[Backend, ...]:
    def listed(model: str) -> Backend:
        return backend(provider, model, model=model, price=None, tier="hosted", location="hosted", window_tokens=None)

    return (
        listed("gpt-audio"),
        listed("gpt-image-1.5"),
        backend(provider, "claude", kind="anthropic", price=DEAR_WRITES),
        backend(provider, "writer", price=DEAR_WRITES),
    )


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, more=more) as opened:
        yield opened


def team(usd: str) -> Any:
    return tenant(cache={"enabled": False}, budget={"limit_usd": usd})


async def refused(gateway: InProcessGateway, request: CompletionRequest, usd: str) -> bool:
    """Is it, before the provider hears of it?"""
    try:
        await gateway.read(request, team(usd))
    except BudgetExhausted:
        assert not gateway.provider.exchanges
        return True
    return False


SPEAKING: dict[str, Any] = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}


@pytest.mark.parametrize(("more", "dear"), [(SPEAKING, True), ({"modalities": ["text"]}, False), ({}, False)])
async def test_an_answer_that_may_speak_is_held_for_at_the_price_of_sound(
    gateway: InProcessGateway, more: dict[str, Any], dear: bool
) -> None:
    """1,000 tokens of sound cost 0.064 USD, of text 0.01."""
    spoken = {**NINE_WORDS, "completion_tokens_details": {"audio_tokens": 8}}
    gateway.provider.script(plain_reply(completion("fine", spoken)))
    fields = {"stream": False, "model": "gpt-audio", "max_tokens": 1000, **more}
    assert await refused(gateway, request_for("/v1/chat/completions", **fields), "0.03") == dear


@pytest.mark.parametrize(("more", "dear"), [({}, True), ({"modalities": ["text"]}, False)])
async def test_a_chat_with_a_model_that_draws_is_held_for_at_the_price_of_images_unless_text_alone_is_asked_for(
    gateway: InProcessGateway, more: dict[str, Any], dear: bool
) -> None:
    """512 tokens, below which it is not capped, cost 0.016 USD of an image, 0.005 of text."""
    fields = {"stream": False, "model": "gpt-image-1.5", "max_tokens": 1000, **more}
    gateway.provider.script(plain_reply(completion("fine", NINE_WORDS)))
    assert await refused(gateway, request_for("/v1/chat/completions", **fields), "0.015") == dear


def form(fields: dict[str, str]) -> CompletionRequest:
    parts = "".join(
        f'--b\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{said}\r\n' for name, said in fields.items()
    )
    headers = {b"content-type": b"multipart/form-data; boundary=b"}
    body = f"{parts}--b--\r\n".encode()
    return PATHS["/v1/images/edits"].parse(body, new_request_id(), Controls(), headers)


async def test_every_image_that_a_form_asks_for_is_held_for(gateway: InProcessGateway) -> None:
    assert await refused(gateway, form({"model": "gpt-image-1.5", "prompt": "a boat", "n": "4"}), "0.6")


def drawing(n: Any) -> CompletionRequest:
    body = {"model": "gpt-image-1.5", "prompt": "a boat"} | ({} if n is None else {"n": n})
    return PATHS["/v1/images/generations"].parse(orjson.dumps(body), new_request_id(), Controls(), {})


@pytest.mark.parametrize(("n", "dear"), [(None, False), (1, False), (4, True), ("4", True), ("four", False)])
async def test_every_image_that_is_asked_for_is_held_for_at_the_price_of_images(
    gateway: InProcessGateway, n: Any, dear: bool
) -> None:
    """One has 16,384 tokens at most, which cost 0.52 USD."""
    usage = {"input_tokens": 9, "output_tokens": 6000, "output_tokens_details": {"image_tokens": 6000}}
    gateway.provider.script(plain_reply({"created": 1, "data": [{"b64_json": ""}], "usage": usage}))
    assert await refused(gateway, drawing(n), "0.6") == dear


async def test_an_image_is_held_for_at_the_price_of_images(gateway: InProcessGateway) -> None:
    assert await refused(gateway, drawing(1), "0.4")


TEXT = "hello there " * 200


@pytest.mark.parametrize("name", ["cache_control", "cache\\u005fcontrol", "\\u0063ache_control"])
async def test_a_write_of_the_prompt_cache_is_held_for_however_it_is_spelt(
    gateway: InProcessGateway, name: str
) -> None:
    block = f'{{"type":"text","text":"{TEXT}","{name}":{{"type":"ephemeral"}}}}'
    raw = f'{{"model":"claude","max_tokens":9,"messages":[{{"role":"user","content":[{block}]}}]}}'
    request = PATHS["/v1/messages"].parse(raw.encode(), new_request_id(), Controls(), {})
    assert await refused(gateway, request, "0.02")


async def test_a_breakpoint_of_the_prompt_cache_in_openais_words_is_held_for(gateway: InProcessGateway) -> None:
    part = {"type": "text", "text": TEXT, "prompt_cache_breakpoint": {"mode": "explicit"}}
    messages = [{"role": "user", "content": [part]}]
    request = request_for("/v1/chat/completions", stream=False, model="claude", max_tokens=9, messages=messages)
    assert await refused(gateway, request, "0.02")


async def test_who_asks_anthropic_for_no_write_is_not_held_to_its_price(gateway: InProcessGateway) -> None:
    request = request_for(
        "/v1/messages", stream=False, model="claude", messages=[{"role": "user", "content": TEXT + "é"}]
    )
    assert not await refused(gateway, request, "0.02")


async def test_a_write_of_the_prompt_cache_that_nobody_has_to_ask_for_is_held_for(gateway: InProcessGateway) -> None:
    messages = [{"role": "user", "content": TEXT}]
    request = request_for("/v1/chat/completions", stream=False, model="writer", max_tokens=9, messages=messages)
    assert await refused(gateway, request, "0.02")


async def test_each_of_several_prompts_may_have_an_answer_as_long_as_its_own_window_allows(
    gateway: InProcessGateway,
) -> None:
    """Of 8,000 tokens; together the prompts have more. Whole answers would come to 0.2 USD."""
    prompts = ["hello there " * 1000] * 5
    await gateway.read(request_for("/v1/completions", stream=False, prompt=prompts, max_tokens=4000), team("0.1"))
    assert gateway.provider.last.json["max_tokens"] * len(prompts) * 10 / 1e6 <= 0.1


CONTRADICTING = {"max_completion_tokens": 5, "max_tokens": 7000}


async def test_two_limits_that_contradict_each_other_go_out_as_they_came_where_the_larger_one_is_paid_for(
    gateway: InProcessGateway,
) -> None:
    await gateway.read(request_for("/v1/chat/completions", stream=False, **CONTRADICTING), team("500"))
    told = gateway.provider.last.json
    assert (told["max_completion_tokens"], told["max_tokens"]) == (5, 7000)


async def test_two_limits_that_contradict_each_other_become_what_is_held_for_where_money_is_short(
    gateway: InProcessGateway,
) -> None:
    """Some servers know `max_tokens` alone."""
    await gateway.read(request_for("/v1/chat/completions", stream=False, **CONTRADICTING), team("0.05"))
    told = gateway.provider.last.json
    assert told["max_completion_tokens"] == told["max_tokens"]
    assert 5 < told["max_tokens"] <= 5000
