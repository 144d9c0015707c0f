"""The service tier and the charged tools that a provider reports are noted beside the tokens, in every dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, open_gateway
from tests.fakes.provider import Raw
from tests.money.reporting import (
    DONE,
    EVERY_DIALECT,
    NO_CACHE,
    PRICE,
    STREAM,
    begun_message,
    chunk,
    completion,
    event,
    hang_up,
    more,
    plain_reply,
    request_for,
    row_of,
)


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, more=more, price=PRICE) as opened:
        yield opened


# -- tiers and fees ------------------------------------------------------------------------------------------------

SERVED = {"input_tokens": 20, "output_tokens": 4, "service_tier": "priority", "speed": "fast", "inference_geo": "us"}
SEARCHED = {**SERVED, "server_tool_use": {"web_search_requests": 5, "web_fetch_requests": 3}}


def whole_message(usage: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": "fine"}]
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": "end_turn",
        "usage": usage,
    }


@EVERY_DIALECT
@pytest.mark.parametrize("stream", [False, True])
async def test_tier_and_searches_of_an_anthropic_answer_are_noted_in_every_dialect(
    gateway: InProcessGateway, path: str, stream: bool
) -> None:
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {**SEARCHED, "output_tokens": 4}}
    streamed = begun_message({**SERVED, "output_tokens": 1}) + event(end) + event({"type": "message_stop"})
    gateway.provider.script(Raw((STREAM + streamed,), then="fin") if stream else plain_reply(whole_message(SEARCHED)))
    await gateway.read(request_for(path, model="claude", stream=stream), NO_CACHE)
    usage = gateway.record.attempts[0].usage
    assert usage is not None
    assert (usage.service_tier, usage.fees) == ("fast+priority+us", (("web_search", 5),))
    assert (usage.input_tokens, usage.output_tokens) == (20, 4)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_tier_of_a_chat_completion_is_noted(gateway: InProcessGateway, path: str, stream: bool) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
    streamed = chunk({"role": "assistant", "content": ""}, service_tier="flex") + chunk({"content": "fine"})
    streamed += chunk({}, "stop") + chunk(None, usage=usage) + DONE
    body = completion("fine", usage, service_tier="flex")
    gateway.provider.script(Raw((STREAM + streamed,), then="fin") if stream else plain_reply(body))
    await gateway.read(request_for(path, stream=stream), NO_CACHE)
    found = gateway.record.attempts[0].usage
    assert found is not None
    assert (found.service_tier, found.input_tokens, found.output_tokens) == ("flex", 20, 4)


async def test_the_tier_of_an_answer_that_is_interrupted_is_noted(gateway: InProcessGateway) -> None:
    begun = chunk({"role": "assistant", "content": ""}, service_tier="priority") + chunk({"content": "word "}) * 3
    gateway.provider.script(Raw((STREAM + begun,), then="hang"))
    attempt = await hang_up(gateway, request_for("/v1/chat/completions"))
    assert attempt.usage is not None
    assert (attempt.usage.service_tier, attempt.usage.estimated) == ("priority", True)
    assert attempt.usage.input_tokens == attempt.input_tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_model_that_searched_is_charged_one_search(gateway: InProcessGateway, stream: bool) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
    notes = [{"type": "url_citation", "url_citation": {"url": "https://example.org", "title": "x"}}] * 2
    body = completion("fine", usage)
    body["choices"][0]["message"]["annotations"] = notes
    streamed = chunk({"content": "fine"}) + chunk({"annotations": notes}) + chunk({}, "stop") + chunk(None, usage=usage)
    gateway.provider.script(Raw((STREAM + streamed + DONE,), then="fin") if stream else plain_reply(body))
    await gateway.read(request_for("/v1/chat/completions", stream=stream), NO_CACHE)
    found = gateway.record.attempts[0].usage
    assert found is not None
    assert found.fees == (("web_search", 1),)


ITEMS = [
    {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"id": "ws_2", "type": "web_search_call", "status": "failed", "action": {"type": "search", "query": "x"}},
    {"id": "ws_3", "type": "web_search_call", "status": "completed", "action": {"type": "open_page", "url": "x"}},
    {"id": "fs_1", "type": "file_search_call", "status": "completed", "queries": ["x"], "results": None},
    {"id": "fs_2", "type": "file_search_call", "status": "completed", "queries": ["y"], "results": None},
    {"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "container_id": "a", "code": "1"},
    {"id": "ci_2", "type": "code_interpreter_call", "status": "completed", "container_id": "a", "code": "2"},
    {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": ""},
]
TEXT = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
CHARGED = (("code_execution", 1), ("file_search", 2), ("image_generation", 1), ("web_search", 1))


def response(status: str, **fields: Any) -> dict[str, Any]:
    output = [*ITEMS, {**TEXT, "content": [{"type": "output_text", "text": "fine", "annotations": []}]}]
    usage = {"input_tokens": 20, "output_tokens": 4, "total_tokens": 24}
    body = {"id": "resp_1", "object": "response", "status": status, "service_tier": "flex", "created_at": 1}
    return {**body, "output": output, "usage": usage, **fields}


def streamed_response(*, whole: bool) -> bytes:
    begun = response("in_progress", output=[], usage=None)
    said = event({"type": "response.created", "response": begun})
    for place, item in enumerate(ITEMS):
        at = {"output_index": place}
        said += event({"type": "response.output_item.added", **at, "item": {**item, "status": "in_progress"}})
        said += event({"type": "response.output_item.done", **at, "item": item})
    at = {"output_index": len(ITEMS), "item_id": "msg_1", "content_index": 0}
    said += event({"type": "response.output_item.added", "output_index": len(ITEMS), "item": {**TEXT, "content": []}})
    said += event({"type": "response.output_text.delta", **at, "delta": "word "})
    return said + event({"type": "response.completed", "response": response("completed")}) if whole else said


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_of_the_provider_that_were_completed_are_charged(gateway: InProcessGateway, stream: bool) -> None:
    step = Raw((STREAM + streamed_response(whole=True),), then="fin") if stream else plain_reply(response("completed"))
    gateway.provider.script(step)
    await gateway.read(request_for("/v1/responses", stream=stream, store=False), NO_CACHE)
    usage = gateway.record.attempts[0].usage
    assert usage is not None
    assert (usage.fees, usage.service_tier, usage.output_tokens) == (CHARGED, "flex", 4)


async def test_tools_that_were_completed_before_a_hang_up_are_charged(gateway: InProcessGateway) -> None:
    gateway.provider.script(Raw((STREAM + streamed_response(whole=False),), then="hang"))
    attempt = await hang_up(gateway, request_for("/v1/responses", store=False))
    assert attempt.usage is not None
    assert (attempt.usage.fees, attempt.usage.service_tier, attempt.usage.estimated) == (CHARGED, "flex", True)


async def test_a_response_that_failed_is_billed_as_it_counts(gateway: InProcessGateway) -> None:
    failed = response("failed", error={"code": "server_error", "message": "oh"})
    said = streamed_response(whole=False) + event({"type": "response.failed", "response": failed})
    gateway.provider.script(Raw((STREAM + said,), then="fin"))
    with pytest.raises(GatewayError):
        await gateway.read(request_for("/v1/responses", store=False), NO_CACHE)
    row = await row_of(gateway)
    assert (row["outcome"], row["input_tokens"], row["output_tokens"]) == ("interrupted", 20, 4)
