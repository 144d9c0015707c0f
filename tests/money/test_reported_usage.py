"""What a provider reported is what is booked, also when its answer is interrupted or malformed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.domain.routing.route import Route
from gateway.errors import GatewayError
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.fakes.gateway import InProcessGateway, open_gateway, tenant
from tests.fakes.provider import Raw, Reply
from tests.money.reporting import (
    DONE,
    EVERY_DIALECT,
    NO_CACHE,
    OUTPUT,
    PLAIN,
    PRICE,
    READ,
    STREAM,
    WRITTEN,
    Decided,
    begun_message,
    chunk,
    completion,
    cost_of,
    event,
    hang_up,
    more,
    plain_reply,
    request_for,
    row_of,
)
from tests.support.waiting import until


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path, more=more, price=PRICE) as opened:
        yield opened


# -- interrupted ---------------------------------------------------------------------------------------------------


@EVERY_DIALECT
@pytest.mark.parametrize(("usage", "column"), [(READ, "cached_tokens"), (WRITTEN, "cache_write_1h_tokens")])
async def test_a_hang_up_after_the_input_was_reported_is_billed_in_the_reported_classes(
    gateway: InProcessGateway, path: str, usage: dict[str, Any], column: str
) -> None:
    gateway.provider.script(Raw((STREAM + begun_message(usage),), then="hang"))
    await hang_up(gateway, request_for(path, model="claude"))
    row = await row_of(gateway)
    assert (row["outcome"], row["estimated"]) == ("interrupted", True)
    assert (row["input_tokens"], row[column]) == (100, 20_000)
    assert 1 <= row["output_tokens"] <= 5
    assert row["cost_pico"] == cost_of(row)


@EVERY_DIALECT
@pytest.mark.parametrize("end", ["cut", "error event"])
async def test_a_stream_that_its_provider_breaks_off_is_billed_in_the_reported_classes(
    gateway: InProcessGateway, path: str, end: str
) -> None:
    failed = event({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    pieces = (STREAM + begun_message(READ), 0.02, failed if end == "error event" else b"")
    gateway.provider.script(Raw(pieces, then="fin"))
    with pytest.raises(GatewayError):
        await gateway.read(request_for(path, model="claude"), NO_CACHE)
    row = await row_of(gateway)
    assert (row["outcome"], row["input_tokens"], row["cached_tokens"]) == ("interrupted", 100, 20_000)
    assert row["cost_pico"] == cost_of(row)


@EVERY_DIALECT
async def test_a_stream_that_fails_before_its_first_byte_reached_the_client_is_billed_in_the_reported_classes(
    gateway: InProcessGateway, path: str
) -> None:
    """The first event reports the input, and what comes with it is garbage."""
    gateway.provider.script(Raw((STREAM + begun_message(READ, words=0) + b"data: nonsense\n\n",), then="fin"))
    with pytest.raises(GatewayError):
        await gateway.read(request_for(path, model="claude"), NO_CACHE)
    row = await row_of(gateway)
    assert (row["input_tokens"], row["cached_tokens"]) == (100, 20_000)


@pytest.mark.parametrize("fields", [{"stream_options": {"include_usage": True}}, {}])
async def test_usage_in_every_chunk_is_booked_as_last_reported(
    gateway: InProcessGateway, fields: dict[str, Any]
) -> None:
    """As vLLM's continuous usage statistics and Google's endpoint have it."""

    def counted(output: int) -> bytes:
        usage = {"prompt_tokens": 5000, "completion_tokens": output, "total_tokens": 5000 + output}
        return chunk({"content": "word "}, usage={**usage, "prompt_tokens_details": {"cached_tokens": 4000}})

    gateway.provider.script(Raw((STREAM + counted(30) + counted(60) + counted(90),), then="hang"))
    attempt = await hang_up(gateway, request_for("/v1/chat/completions", **fields))
    row = await row_of(gateway)
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (1000, 4000, 90)
    assert row["cost_pico"] == cost_of(row)
    assert attempt.usage is not None
    assert attempt.usage.estimated


async def test_usage_written_in_an_unusual_way_is_found_when_the_client_hangs_up(gateway: InProcessGateway) -> None:
    usage = b'"usage" : {"prompt_tokens": 5000, "completion_tokens": 30, "total_tokens": 5030}'
    said = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}], ' + usage + b"}\n\n"
    gateway.provider.script(Raw((STREAM + said,), then="hang"))
    await hang_up(gateway, request_for("/v1/chat/completions"))
    row = await row_of(gateway)
    assert (row["input_tokens"], row["output_tokens"]) == (5000, 30)


async def test_the_gateways_own_cut_at_the_budget_is_billed_and_told_in_the_reported_classes(
    gateway: InProcessGateway,
) -> None:
    limit = 600 * OUTPUT
    who = tenant(
        cache={"enabled": False},
        budget={"limit_usd": str(limit / 1e12), "window": "day", "on_exhausted": "truncate"},
    )
    gateway.provider.script(Raw((STREAM + begun_message(READ, words=2000),), then="hang"))
    data = await gateway.read(request_for("/v1/messages", model="claude", max_tokens=2000), who)
    row = await row_of(gateway)
    assert (row["input_tokens"], row["cached_tokens"]) == (100, 20_000)
    assert row["cost_pico"] == cost_of(row)
    assert b'"cache_read_input_tokens":20000' in data


async def test_a_stream_that_was_kept_back_and_replaced_is_billed_in_the_reported_classes(
    gateway: InProcessGateway,
) -> None:
    small, claude, _ = gateway.fleet.backends
    gateway.pipeline.router = Decided(Route((claude,), "test", escalate_to=small, escalate_below=0.6))
    refuses = begun_message(READ, words=0)
    for text in ("I'm sorry, ", "but I can't ", "assist with ", "that request."):
        delta = {"type": "text_delta", "text": text}
        refuses += event({"type": "content_block_delta", "index": 0, "delta": delta})
    gateway.provider.script(Raw((STREAM + refuses,), then="hang"), Reply(text="fine"))
    assert b"fine" in await gateway.read(request_for("/v1/chat/completions"), NO_CACHE)
    row = (await gateway.rows())[0]
    assert (row["backend"], row["outcome"]) == ("claude", "escalated")
    assert (row["input_tokens"], row["cached_tokens"]) == (100, 20_000)
    assert row["cost_pico"] == cost_of(row)


# -- reported in many ways -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("usage", "booked"),
    [
        ({"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 424}, {"reasoning_tokens": 400}),
        ({"prompt_tokens": "20", "completion_tokens": "4", "total_tokens": "24"}, {"input_tokens": 20}),
        (
            {"prompt_tokens": 20, "completion_tokens": 4, "prompt_cache_hit_tokens": 16, "prompt_cache_miss_tokens": 4},
            {"cached_tokens": 16, "input_tokens": 4},
        ),
        ({"prompt_tokens": 20, "completion_tokens": 4, "cached_tokens": 16}, {"cached_tokens": 16, "input_tokens": 4}),
    ],
)
async def test_every_vendors_way_to_count_is_booked_in_the_right_classes(
    gateway: InProcessGateway, usage: dict[str, Any], booked: dict[str, int], stream: bool
) -> None:
    text = "four words of text"
    streamed = STREAM + chunk({"content": text}) + chunk({}, "stop") + chunk(None, usage=usage) + DONE
    gateway.provider.script(Raw((streamed,), then="fin") if stream else plain_reply(completion(text, usage)))
    await gateway.read(request_for("/v1/chat/completions", stream=stream), NO_CACHE)
    row = await row_of(gateway)
    assert {name: row[name] for name in booked} == booked
    assert (row["estimated"], row["cost_pico"]) == (False, cost_of(row))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("told", [0, 1])
async def test_an_output_that_cannot_be_so_short_is_counted_by_what_was_delivered(
    gateway: InProcessGateway, told: int, stream: bool
) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 67
    usage = {"prompt_tokens": 20, "completion_tokens": told, "total_tokens": 20 + told}
    streamed = STREAM + chunk({"content": text}) + chunk({}, "stop") + chunk(None, usage=usage) + DONE
    gateway.provider.script(Raw((streamed,), then="fin") if stream else plain_reply(completion(text, usage)))
    await gateway.read(request_for("/v1/chat/completions", stream=stream), NO_CACHE)
    attempt = gateway.record.attempts[0]
    row = await row_of(gateway)
    assert row["input_tokens"] == 20
    assert len(text) // 8 <= row["output_tokens"] <= len(text) // 3
    assert attempt.usage is not None
    assert (attempt.usage.doubt, attempt.usage.estimated) == (row["doubt"], row["estimated"]) == ("output_tokens", True)


@pytest.mark.parametrize(
    ("text", "told"),
    [("-" * 400, 7), (" " * 3000, 30), ("Donaudampfschifffahrtsgesellschaft " * 2, 5), ("日本語" * 99, 99)],
)
async def test_long_tokens_of_an_honest_provider_are_believed(gateway: InProcessGateway, text: str, told: int) -> None:
    gateway.provider.script(plain_reply(completion(text, {"prompt_tokens": 20, "completion_tokens": told})))
    await gateway.read(request_for("/v1/chat/completions", stream=False), NO_CACHE)
    usage = gateway.record.attempts[0].usage
    assert usage is not None
    assert (usage.output_tokens, usage.estimated, usage.doubt) == (told, False, "")


async def test_a_prompt_that_is_repeated_on_demand_is_no_output(gateway: InProcessGateway) -> None:
    choice = {"index": 0, "text": "word " * 600, "finish_reason": "length"}
    usage = {"prompt_tokens": 600, "completion_tokens": 1, "total_tokens": 601}
    gateway.provider.script(plain_reply({"id": "c", "object": "text_completion", "choices": [choice], "usage": usage}))
    await gateway.read(request_for("/v1/completions", stream=False, echo=True, max_tokens=1), NO_CACHE)
    assert (await row_of(gateway))["output_tokens"] == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_an_input_of_nothing_is_counted_by_what_was_sent(gateway: InProcessGateway, path: str) -> None:
    gateway.provider.script(
        plain_reply(completion("fine", {"prompt_tokens": 0, "completion_tokens": 1, "total_tokens": 1}))
    )
    await gateway.read(request_for(path, stream=False), NO_CACHE)
    attempt, row = gateway.record.attempts[0], await row_of(gateway)
    assert row["input_tokens"] == attempt.input_tokens > 0
    assert attempt.usage is not None
    assert (attempt.usage.doubt, attempt.usage.estimated) == ("input_tokens", True)


async def test_a_discount_that_cannot_be_is_not_believed(gateway: InProcessGateway) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 400}}
    gateway.provider.script(plain_reply(completion("four words of text", usage)))
    await gateway.read(request_for("/v1/chat/completions", stream=False), NO_CACHE)
    attempt, row = gateway.record.attempts[0], await row_of(gateway)
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (20, 0, 4)
    assert attempt.usage is not None
    assert attempt.usage.doubt == row["doubt"] == "cached_tokens"


# -- no answer -----------------------------------------------------------------------------------------------------

COUNTED = {"prompt_tokens": 700, "completion_tokens": 30, "total_tokens": 730}


@pytest.mark.parametrize(
    "body",
    [
        {"id": "c", "object": "chat.completion", "choices": [], "usage": COUNTED},
        {"error": {"message": "the model said nothing", "type": "server_error"}, "usage": COUNTED},
    ],
    ids=["no choices", "error"],
)
async def test_a_plain_body_that_is_no_answer_is_billed_as_it_counts_and_the_spare_backend_answers(
    gateway: InProcessGateway, body: dict[str, Any]
) -> None:
    small, _, spare = gateway.fleet.backends
    gateway.pipeline.router = Decided(Route((small, spare), "test"))
    gateway.provider.script(plain_reply(body), Reply(text="fine"))
    assert b"fine" in await gateway.read(request_for("/v1/chat/completions", stream=False), NO_CACHE)
    rows = await gateway.rows()
    assert rows[0]["outcome"] == "failed"
    assert (rows[0]["input_tokens"], rows[0]["output_tokens"], rows[0]["estimated"]) == (700, 30, False)
    assert rows[0]["cost_pico"] == cost_of(rows[0])
    assert rows[-1]["outcome"] == "ok"


@pytest.mark.parametrize("framing", ["length", "close"])
async def test_a_plain_body_that_is_cut_halfway_is_billed_by_what_arrived(
    gateway: InProcessGateway, framing: str
) -> None:
    """The client is answered by another attempt, as ever."""
    body = orjson.dumps(completion("The quick brown fox jumps over the lazy dog. " * 67, COUNTED))
    at = body.index(b'"finish_reason"') - 400
    head = PLAIN + (b"content-length: %d\r\n\r\n" % len(body) if framing == "length" else b"connection: close\r\n\r\n")
    gateway.provider.script(Raw((head + body[:at],), then="fin"), Reply(text="fine"))
    small, _, spare = gateway.fleet.backends
    gateway.pipeline.router = Decided(Route((small, spare), "test"))
    assert b"fine" in await gateway.read(request_for("/v1/chat/completions", stream=False), NO_CACHE)
    row = (await gateway.rows())[0]
    assert row["outcome"] == ("interrupted" if framing == "length" else "failed")
    assert row["input_tokens"] == gateway.record.attempts[0].input_tokens > 0
    assert 2600 // 5 <= row["output_tokens"] <= 2600 // 3
    assert (row["estimated"], row["cost_pico"]) == (True, cost_of(row))


async def test_a_plain_body_that_is_cut_after_it_reported_its_usage_is_billed_as_reported(
    gateway: InProcessGateway,
) -> None:
    body = orjson.dumps({"usage": {**READ, "output_tokens": 40}, "type": "message", "content": [{"type": "text"}]})
    cut = b"content-length: %d\r\n\r\n" % (len(body) + 9) + body[:-4]
    gateway.provider.script(Raw((PLAIN + cut,), then="fin"), Raw((PLAIN + cut,), then="fin"))
    with pytest.raises(GatewayError):
        await gateway.read(request_for("/v1/messages", model="claude", stream=False), NO_CACHE)
    row = (await gateway.rows())[0]
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (100, 20_000, 40)


async def test_a_client_that_leaves_while_a_plain_body_arrives_is_billed_for_what_arrived(
    gateway: InProcessGateway,
) -> None:
    body = orjson.dumps(completion("The quick brown fox jumps over the lazy dog. " * 67, COUNTED))
    gateway.provider.script(Raw((PLAIN + b"content-length: %d\r\n\r\n" % len(body) + body[:2000],), then="hang"))
    reading = asyncio.get_running_loop().create_task(
        gateway.read(request_for("/v1/chat/completions", stream=False), NO_CACHE)
    )
    await until(lambda: gateway.record.attempts and gateway.record.attempts[0].first_byte_at)
    await asyncio.sleep(0.05)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    row = await row_of(gateway)
    assert row["outcome"] == "interrupted"
    assert row["output_tokens"] > 300


async def test_a_page_of_html_is_no_answer_and_costs_nothing(gateway: InProcessGateway) -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 14\r\n\r\n<html>no</html>"[:-1]
    gateway.provider.script(Raw((page,)), Raw((page,)))
    with pytest.raises(GatewayError):
        await gateway.read(request_for("/v1/chat/completions", stream=False), NO_CACHE)
    assert {(row["outcome"], row["input_tokens"], row["cost_pico"]) for row in await gateway.rows()} == {
        ("failed", 0, 0)
    }
