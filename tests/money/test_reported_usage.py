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
from tests.fakes.house import House, opened_house, tenant
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
    asked,
    begun_message,
    chunk,
    completion,
    cost_of,
    event,
    hang_up,
    more,
    plain,
    row_of,
)
from tests.support.waiting import until


@pytest.fixture
async def house(state: State, database: Database, tmp_path: Path) -> AsyncIterator[House]:
    async with opened_house(state, database, tmp_path, more=more, price=PRICE) as opened:
        yield opened


# -- interrupted ---------------------------------------------------------------------------------------------------


@EVERY_DIALECT
@pytest.mark.parametrize(("usage", "column"), [(READ, "cached_tokens"), (WRITTEN, "cache_write_1h_tokens")])
async def test_a_hang_up_after_the_input_was_reported_is_billed_in_the_reported_classes(
    house: House, path: str, usage: dict[str, Any], column: str
) -> None:
    house.provider.script(Raw((STREAM + begun_message(usage),), then="hang"))
    await hang_up(house, asked(path, model="claude"))
    row = await row_of(house)
    assert (row["outcome"], row["estimated"]) == ("interrupted", True)
    assert (row["input_tokens"], row[column]) == (100, 20_000)
    assert 1 <= row["output_tokens"] <= 5
    assert row["cost_pico"] == cost_of(row)


@EVERY_DIALECT
@pytest.mark.parametrize("end", ["cut", "error event"])
async def test_a_stream_that_its_provider_breaks_off_is_billed_in_the_reported_classes(
    house: House, path: str, end: str
) -> None:
    failed = event({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    pieces = (STREAM + begun_message(READ), 0.02, failed if end == "error event" else b"")
    house.provider.script(Raw(pieces, then="fin"))
    with pytest.raises(GatewayError):
        await house.read(asked(path, model="claude"), NO_CACHE)
    row = await row_of(house)
    assert (row["outcome"], row["input_tokens"], row["cached_tokens"]) == ("interrupted", 100, 20_000)
    assert row["cost_pico"] == cost_of(row)


@EVERY_DIALECT
async def test_a_stream_that_fails_before_its_first_byte_reached_the_client_is_billed_in_the_reported_classes(
    house: House, path: str
) -> None:
    """The first event reports the input, and what comes with it is garbage."""
    house.provider.script(Raw((STREAM + begun_message(READ, words=0) + b"data: nonsense\n\n",), then="fin"))
    with pytest.raises(GatewayError):
        await house.read(asked(path, model="claude"), NO_CACHE)
    row = await row_of(house)
    assert (row["input_tokens"], row["cached_tokens"]) == (100, 20_000)


@pytest.mark.parametrize("fields", [{"stream_options": {"include_usage": True}}, {}])
async def test_usage_in_every_chunk_is_booked_as_last_reported(house: House, fields: dict[str, Any]) -> None:
    """As vLLM's continuous usage statistics and Google's endpoint have it."""

    def counted(output: int) -> bytes:
        usage = {"prompt_tokens": 5000, "completion_tokens": output, "total_tokens": 5000 + output}
        return chunk({"content": "word "}, usage={**usage, "prompt_tokens_details": {"cached_tokens": 4000}})

    house.provider.script(Raw((STREAM + counted(30) + counted(60) + counted(90),), then="hang"))
    attempt = await hang_up(house, asked("/v1/chat/completions", **fields))
    row = await row_of(house)
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (1000, 4000, 90)
    assert row["cost_pico"] == cost_of(row)
    assert attempt.usage is not None
    assert attempt.usage.estimated


async def test_usage_written_in_an_unusual_way_is_found_when_the_client_hangs_up(house: House) -> None:
    usage = b'"usage" : {"prompt_tokens": 5000, "completion_tokens": 30, "total_tokens": 5030}'
    said = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}], ' + usage + b"}\n\n"
    house.provider.script(Raw((STREAM + said,), then="hang"))
    await hang_up(house, asked("/v1/chat/completions"))
    row = await row_of(house)
    assert (row["input_tokens"], row["output_tokens"]) == (5000, 30)


async def test_the_gateways_own_cut_at_the_budget_is_billed_and_told_in_the_reported_classes(house: House) -> None:
    limit = 600 * OUTPUT
    who = tenant(
        cache={"enabled": False},
        budget={"limit_usd": str(limit / 1e12), "window": "day", "on_exhausted": "truncate"},
    )
    house.provider.script(Raw((STREAM + begun_message(READ, words=2000),), then="hang"))
    data = await house.read(asked("/v1/messages", model="claude", max_tokens=2000), who)
    row = await row_of(house)
    assert (row["input_tokens"], row["cached_tokens"]) == (100, 20_000)
    assert row["cost_pico"] == cost_of(row)
    assert b'"cache_read_input_tokens":20000' in data


async def test_a_stream_that_was_kept_back_and_replaced_is_billed_in_the_reported_classes(house: House) -> None:
    small, claude, _ = house.fleet.backends
    house.pipeline.router = Decided(Route((claude,), "test", escalate_to=small, escalate_below=0.6))
    refuses = begun_message(READ, words=0)
    for text in ("I'm sorry, ", "but I can't ", "assist with ", "that request."):
        delta = {"type": "text_delta", "text": text}
        refuses += event({"type": "content_block_delta", "index": 0, "delta": delta})
    house.provider.script(Raw((STREAM + refuses,), then="hang"), Reply(text="fine"))
    assert b"fine" in await house.read(asked("/v1/chat/completions"), NO_CACHE)
    row = (await house.rows())[0]
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
    house: House, usage: dict[str, Any], booked: dict[str, int], stream: bool
) -> None:
    text = "four words of text"
    streamed = STREAM + chunk({"content": text}) + chunk({}, "stop") + chunk(None, usage=usage) + DONE
    house.provider.script(Raw((streamed,), then="fin") if stream else plain(completion(text, usage)))
    await house.read(asked("/v1/chat/completions", stream=stream), NO_CACHE)
    row = await row_of(house)
    assert {name: row[name] for name in booked} == booked
    assert (row["estimated"], row["cost_pico"]) == (False, cost_of(row))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("told", [0, 1])
async def test_an_output_that_cannot_be_so_short_is_counted_by_what_was_delivered(
    house: House, told: int, stream: bool
) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 67
    usage = {"prompt_tokens": 20, "completion_tokens": told, "total_tokens": 20 + told}
    streamed = STREAM + chunk({"content": text}) + chunk({}, "stop") + chunk(None, usage=usage) + DONE
    house.provider.script(Raw((streamed,), then="fin") if stream else plain(completion(text, usage)))
    await house.read(asked("/v1/chat/completions", stream=stream), NO_CACHE)
    attempt = house.record.attempts[0]
    row = await row_of(house)
    assert row["input_tokens"] == 20
    assert len(text) // 8 <= row["output_tokens"] <= len(text) // 3
    assert attempt.usage is not None
    assert (attempt.usage.doubt, attempt.usage.estimated) == (row["doubt"], row["estimated"]) == ("output_tokens", True)


@pytest.mark.parametrize(
    ("text", "told"),
    [("-" * 400, 7), (" " * 3000, 30), ("Donaudampfschifffahrtsgesellschaft " * 2, 5), ("日本語" * 99, 99)],
)
async def test_long_tokens_of_an_honest_provider_are_believed(house: House, text: str, told: int) -> None:
    house.provider.script(plain(completion(text, {"prompt_tokens": 20, "completion_tokens": told})))
    await house.read(asked("/v1/chat/completions", stream=False), NO_CACHE)
    usage = house.record.attempts[0].usage
    assert usage is not None
    assert (usage.output_tokens, usage.estimated, usage.doubt) == (told, False, "")


async def test_a_prompt_that_is_repeated_on_demand_is_no_output(house: House) -> None:
    choice = {"index": 0, "text": "word " * 600, "finish_reason": "length"}
    usage = {"prompt_tokens": 600, "completion_tokens": 1, "total_tokens": 601}
    house.provider.script(plain({"id": "c", "object": "text_completion", "choices": [choice], "usage": usage}))
    await house.read(asked("/v1/completions", stream=False, echo=True, max_tokens=1), NO_CACHE)
    assert (await row_of(house))["output_tokens"] == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_an_input_of_nothing_is_counted_by_what_was_sent(house: House, path: str) -> None:
    house.provider.script(plain(completion("fine", {"prompt_tokens": 0, "completion_tokens": 1, "total_tokens": 1})))
    await house.read(asked(path, stream=False), NO_CACHE)
    attempt, row = house.record.attempts[0], await row_of(house)
    assert row["input_tokens"] == attempt.input_tokens > 0
    assert attempt.usage is not None
    assert (attempt.usage.doubt, attempt.usage.estimated) == ("input_tokens", True)


async def test_a_discount_that_cannot_be_is_not_believed(house: House) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 400}}
    house.provider.script(plain(completion("four words of text", usage)))
    await house.read(asked("/v1/chat/completions", stream=False), NO_CACHE)
    attempt, row = house.record.attempts[0], await row_of(house)
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
    house: House, body: dict[str, Any]
) -> None:
    small, _, spare = house.fleet.backends
    house.pipeline.router = Decided(Route((small, spare), "test"))
    house.provider.script(plain(body), Reply(text="fine"))
    assert b"fine" in await house.read(asked("/v1/chat/completions", stream=False), NO_CACHE)
    rows = await house.rows()
    assert rows[0]["outcome"] == "failed"
    assert (rows[0]["input_tokens"], rows[0]["output_tokens"], rows[0]["estimated"]) == (700, 30, False)
    assert rows[0]["cost_pico"] == cost_of(rows[0])
    assert rows[-1]["outcome"] == "ok"


@pytest.mark.parametrize("framing", ["length", "close"])
async def test_a_plain_body_that_is_cut_halfway_is_billed_by_what_arrived(house: House, framing: str) -> None:
    """The client is answered by another attempt, as ever."""
    body = orjson.dumps(completion("The quick brown fox jumps over the lazy dog. " * 67, COUNTED))
    at = body.index(b'"finish_reason"') - 400
    head = PLAIN + (b"content-length: %d\r\n\r\n" % len(body) if framing == "length" else b"connection: close\r\n\r\n")
    house.provider.script(Raw((head + body[:at],), then="fin"), Reply(text="fine"))
    small, _, spare = house.fleet.backends
    house.pipeline.router = Decided(Route((small, spare), "test"))
    assert b"fine" in await house.read(asked("/v1/chat/completions", stream=False), NO_CACHE)
    row = (await house.rows())[0]
    assert row["outcome"] == ("interrupted" if framing == "length" else "failed")
    assert row["input_tokens"] == house.record.attempts[0].input_tokens > 0
    assert 2600 // 5 <= row["output_tokens"] <= 2600 // 3
    assert (row["estimated"], row["cost_pico"]) == (True, cost_of(row))


async def test_a_plain_body_that_is_cut_after_it_reported_its_usage_is_billed_as_reported(house: House) -> None:
    body = orjson.dumps({"usage": {**READ, "output_tokens": 40}, "type": "message", "content": [{"type": "text"}]})
    cut = b"content-length: %d\r\n\r\n" % (len(body) + 9) + body[:-4]
    house.provider.script(Raw((PLAIN + cut,), then="fin"), Raw((PLAIN + cut,), then="fin"))
    with pytest.raises(GatewayError):
        await house.read(asked("/v1/messages", model="claude", stream=False), NO_CACHE)
    row = (await house.rows())[0]
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (100, 20_000, 40)


async def test_a_client_that_leaves_while_a_plain_body_arrives_is_billed_for_what_arrived(house: House) -> None:
    body = orjson.dumps(completion("The quick brown fox jumps over the lazy dog. " * 67, COUNTED))
    house.provider.script(Raw((PLAIN + b"content-length: %d\r\n\r\n" % len(body) + body[:2000],), then="hang"))
    reading = asyncio.get_running_loop().create_task(house.read(asked("/v1/chat/completions", stream=False), NO_CACHE))
    await until(lambda: house.record.attempts and house.record.attempts[0].first_byte_at)
    await asyncio.sleep(0.05)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    row = await row_of(house)
    assert row["outcome"] == "interrupted"
    assert row["output_tokens"] > 300


async def test_a_page_of_html_is_no_answer_and_costs_nothing(house: House) -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 14\r\n\r\n<html>no</html>"[:-1]
    house.provider.script(Raw((page,)), Raw((page,)))
    with pytest.raises(GatewayError):
        await house.read(asked("/v1/chat/completions", stream=False), NO_CACHE)
    assert {(row["outcome"], row["input_tokens"], row["cost_pico"]) for row in await house.rows()} == {("failed", 0, 0)}
