"""However a request ends: the exits run once and in order, the money is right, nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import random
import uuid
import weakref
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.usage import Usage
from gateway.domain.request import Controls
from gateway.domain.tenant import Tenant
from gateway.errors import (
    AllBackendsFailed,
    BudgetExhausted,
    CacheOnlyMiss,
    DeadlineExceeded,
    GatewayError,
    LedgerUnavailable,
    LimitExceeded,
    StreamBroken,
)
from gateway.ledger.store.archive import Archive
from gateway.state.redis.commands import Command
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from gateway.telemetry.flight import flight
from tests.fakes.gateway import INPUT, OUTPUT, InProcessGateway, backend, open_gateway, record_of, tenant
from tests.fakes.money import StrictBooks
from tests.fakes.provider import Fail, Provider, Raw, Reply
from tests.support.pieces import with_ending
from tests.support.requests import small_request
from tests.support.waiting import until

DRIP = Reply(tokens=400, drip_s=0.01)
ONE_AT_A_TIME: dict[str, Any] = {"limits": {"concurrent": 1}}
"""A place that is not given back would be missed at once."""


@pytest.fixture
async def gateway(state: State, database: Database, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    async with open_gateway(state, database, tmp_path) as opened:
        yield opened


async def only_row(gateway: InProcessGateway) -> dict[str, Any]:
    (row,) = await gateway.rows()
    return row


async def nothing_is_left(gateway: InProcessGateway) -> None:
    """Places are given back, the exits ran once, and the next request is served."""
    await gateway.provider.settled()
    assert gateway.quiet()
    assert gateway.emitted == 1
    assert gateway.notes.count("place left") == 1
    await gateway.read(small_request("and now something else"), tenant(**ONE_AT_A_TIME))


# -- whole ---------------------------------------------------------------------------------------------------------


async def test_a_stream_is_freed_at_its_end_without_the_garbage_collector(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(tokens=3))
    gc.disable()
    try:
        async with await gateway.serve(small_request(stream=True)) as reply:
            outcome = weakref.ref(reply.outcome)
            async for _ in with_ending(reply):
                pass
        del reply
        await until(lambda: outcome() is None)
    finally:
        gc.enable()


async def test_a_stream_read_to_its_end_is_billed_and_stored(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(tokens=20, drip_s=0.001))
    data = await gateway.read(small_request(stream=True), tenant(**ONE_AT_A_TIME))
    assert data.endswith(b"data: [DONE]\n\n")
    row = await only_row(gateway)
    assert (row["outcome"], row["output_tokens"], row["estimated"], row["cache"]) == ("ok", 20, False, "miss")
    assert row["cost_pico"] == row["input_tokens"] * INPUT + 20 * OUTPUT == gateway.record.cost_pico
    assert (gateway.record.status, gateway.record.finish, gateway.record.error) == (200, "stop", "")
    await gateway.stored()
    await nothing_is_left(gateway)


async def test_whom_it_is_for_and_what_went_over_the_wire_stand_in_the_row(gateway: InProcessGateway) -> None:
    await gateway.read(small_request(user="ada", stream=True), tenant(cost_centre="4711", **ONE_AT_A_TIME))
    row = await only_row(gateway)
    assert row["end_user"] == gateway.record.end_user != "ada"
    assert (row["end_user"][:3], row["cost_centre"]) == ("eu_", "4711")
    assert row["sent_bytes"] == len(gateway.provider.exchanges[0].body)
    assert row["received_bytes"] > 100
    assert row["prices"] == f"input={INPUT} output={OUTPUT}"
    assert (row["chain_seq"], len(row["chain_hash"])) == (1, 32)


async def test_a_plain_answer_read_to_its_end_is_billed_and_stored(gateway: InProcessGateway) -> None:
    data = await gateway.read(small_request(), tenant(**ONE_AT_A_TIME))
    assert data == gateway.record.attempts[0].backend.model.encode().join(data.split(b"model-small"))
    row = await only_row(gateway)
    assert (row["outcome"], row["output_tokens"]) == ("ok", 4)
    await gateway.stored()
    await nothing_is_left(gateway)


async def test_the_exits_of_an_answered_request_run_once_and_in_order(gateway: InProcessGateway) -> None:
    await gateway.read(small_request(stream=True))
    await gateway.stored()
    assert gateway.notes == [
        "admitted", "held", "opened", "journalled", "settled", "tokens settled", "stored", "hold left", "place left",
    ]  # fmt: skip
    assert gateway.emitted == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_the_money_is_settled_and_journalled_before_the_terminating_event_is_released(
    gateway: InProcessGateway, stream: bool
) -> None:
    gateway.provider.script(Reply(drip_s=0.005 if stream else 0.0))
    async with await gateway.serve(small_request(stream=stream)) as reply:
        pieces = with_ending(reply)
        if stream:
            assert b"[DONE]" not in await anext(pieces)
            assert "journalled" not in gateway.notes
        last = [piece async for piece in _until_ending(pieces, gateway)][-1]
        assert last.endswith(b"[DONE]\n\n") if stream else last.startswith(b"{")
        assert gateway.notes.index("journalled") < gateway.notes.index("settled")
        assert "stored" not in gateway.notes
        row = await only_row(gateway)  # already on disk, so a crash now loses nothing
        assert row["outcome"] == "ok"
        assert gateway.record.cost_pico == row["cost_pico"] > 0


async def _until_ending(pieces: AsyncIterator[bytes], gateway: InProcessGateway) -> AsyncIterator[bytes]:
    async for piece in pieces:
        assert b"[DONE]" not in piece or "settled" in gateway.notes
        yield piece


async def test_an_answer_from_the_cache_costs_nothing_and_takes_no_tokens(gateway: InProcessGateway) -> None:
    who = tenant(limits={"tokens_per_minute": 1000, "concurrent": 1})
    first = await gateway.read(small_request(), who)
    await gateway.stored()
    count = len(gateway.provider.exchanges)
    assert await gateway.read(small_request(), who) == first
    record = gateway.record
    assert (record.cache, record.attempts, record.status) == ("exact", [], 200)
    assert len(gateway.provider.exchanges) == count
    assert record.ratelimit[b"x-ratelimit-remaining-tokens"]
    paid, saved = await gateway.rows()
    assert (saved["attempt"], saved["cost_pico"], saved["saved_pico"]) == (0, 0, paid["cost_pico"])
    assert "hit journalled" in gateway.notes
    assert gateway.emitted == 2
    await gateway.read(small_request("again, the place is free"), who)


async def test_a_cached_answer_that_is_never_read_gives_its_place_back(gateway: InProcessGateway) -> None:
    await gateway.read(small_request(), tenant(**ONE_AT_A_TIME))
    await gateway.stored()
    async with await gateway.serve(small_request(stream=True), tenant(**ONE_AT_A_TIME)) as reply:
        assert reply.answer.attempt is None
    assert gateway.quiet()
    await gateway.read(small_request("next"), tenant(**ONE_AT_A_TIME))


# -- not whole -----------------------------------------------------------------------------------------------------


async def test_a_client_that_hangs_up_midway_pays_for_what_came(gateway: InProcessGateway) -> None:
    gateway.provider.script(DRIP)
    reading = asyncio.get_running_loop().create_task(gateway.read(small_request(stream=True), tenant(**ONE_AT_A_TIME)))
    await until(lambda: len(gateway.pieces) >= 5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: gateway.provider.last.hung_up)
    row = await only_row(gateway)
    assert (row["outcome"], row["estimated"]) == ("interrupted", True)
    assert 4 <= row["output_tokens"] <= gateway.provider.last.tokens_sent + 1 < 100  # the first chunk names the role
    assert row["cost_pico"] == row["input_tokens"] * INPUT + row["output_tokens"] * OUTPUT
    assert (gateway.record.status, gateway.record.error) == (499, "client_closed_request")
    assert gateway.pipeline.cache.stats()["entries"] == 0
    await nothing_is_left(gateway)


async def test_a_second_cancellation_does_not_lose_the_spend(gateway: InProcessGateway) -> None:
    gateway.provider.script(DRIP)
    reading = asyncio.get_running_loop().create_task(gateway.read(small_request(stream=True), tenant(**ONE_AT_A_TIME)))
    await until(lambda: gateway.pieces)
    reading.cancel()
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (await only_row(gateway))["outcome"] == "interrupted"
    await nothing_is_left(gateway)


async def test_a_stream_that_is_never_read_is_hung_up_on_and_settled(gateway: InProcessGateway) -> None:
    gateway.provider.script(DRIP)
    async with await gateway.serve(small_request(stream=True), tenant(**ONE_AT_A_TIME)):
        pass
    await until(lambda: gateway.provider.last.hung_up)
    row = await only_row(gateway)
    assert (row["outcome"], row["estimated"]) == ("interrupted", True)
    assert row["output_tokens"] <= gateway.provider.last.tokens_sent + 1
    assert gateway.notes.count("journalled") == gateway.notes.count("settled") == 1
    assert gateway.pipeline.cache.stats()["entries"] == 0
    await nothing_is_left(gateway)


async def test_a_plain_answer_that_is_never_read_was_whole_all_the_same(gateway: InProcessGateway) -> None:
    async with await gateway.serve(small_request(), tenant(**ONE_AT_A_TIME)):
        pass
    row = await only_row(gateway)
    assert (row["outcome"], row["estimated"], row["output_tokens"]) == ("ok", False, 4)
    await gateway.stored()
    await nothing_is_left(gateway)


@pytest.mark.parametrize("stream", [True, False])
async def test_cancelled_before_the_first_byte_the_prompt_is_billed(gateway: InProcessGateway, stream: bool) -> None:
    gateway.provider.script(Reply(delay_s=10))
    asking = asyncio.get_running_loop().create_task(
        gateway.serve(small_request(stream=stream), tenant(**ONE_AT_A_TIME))
    )
    await until(lambda: gateway.provider.exchanges)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    row = await only_row(gateway)
    assert (row["outcome"], row["output_tokens"], row["estimated"]) == ("interrupted", 0, True)
    assert row["cost_pico"] == row["input_tokens"] * INPUT == gateway.record.cost_pico
    assert gateway.record.status == 499
    await nothing_is_left(gateway)


async def test_a_deadline_that_passes_before_the_first_byte_says_so(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(delay_s=10))
    with pytest.raises(DeadlineExceeded, match="deadline"):
        await gateway.serve(small_request(stream=True), tenant(**ONE_AT_A_TIME), within_s=0.1)
    row = await only_row(gateway)
    assert row["outcome"] in ("failed", "interrupted")
    assert (gateway.record.status, gateway.record.error) == (504, "deadline_exceeded")
    await nothing_is_left(gateway)


async def test_a_deadline_that_passes_midway_ends_the_stream_and_bills_what_came(gateway: InProcessGateway) -> None:
    gateway.provider.script(DRIP)
    with pytest.raises(DeadlineExceeded) as caught:
        await gateway.read(small_request(stream=True), tenant(**ONE_AT_A_TIME), within_s=0.3)
    assert gateway.pieces
    assert "before an answer began" not in str(caught.value)
    row = await only_row(gateway)
    assert row["outcome"] == "interrupted"
    assert 0 < row["output_tokens"] <= gateway.provider.last.tokens_sent + 1
    assert gateway.record.status == 504
    await nothing_is_left(gateway)


async def test_a_backend_that_is_down_costs_nothing(gateway: InProcessGateway) -> None:
    gateway.provider.script(Fail(500), Fail(500))
    with pytest.raises(AllBackendsFailed) as caught:
        await gateway.serve(small_request(stream=True), tenant(**ONE_AT_A_TIME))
    assert caught.value.status == 502
    rows = await gateway.rows()
    assert [row["outcome"] for row in rows] == ["failed", "failed"]
    assert sum(row["cost_pico"] for row in rows) == 0 == gateway.record.cost_pico
    assert gateway.record.error == "all_backends_failed"
    assert gateway.pipeline.cache.stats()["entries"] == 0
    await nothing_is_left(gateway)


@pytest.mark.parametrize(
    "step",
    [
        Reply(tokens=20, drip_s=0.001, cut="fin", after=5),
        Reply(tokens=20, drip_s=0.001, cut="rst", after=5),
        Reply(tokens=20, drip_s=0.001, error_event="out of memory", after=5),
        Reply(tokens=5, drip_s=0.001, cut="fin", after=5),
    ],
    ids=["fin", "rst", "error event", "no terminator"],
)
async def test_a_stream_that_breaks_midway_is_an_error_and_bills_what_came(
    gateway: InProcessGateway, step: Reply
) -> None:
    gateway.provider.script(step)
    with pytest.raises(StreamBroken):
        await gateway.read(small_request(stream=True), tenant(**ONE_AT_A_TIME))
    data = b"".join(gateway.pieces)
    assert b"t0" in data
    assert b"[DONE]" not in data
    row = await only_row(gateway)
    assert (row["outcome"], row["estimated"]) == ("interrupted", True)
    assert 5 <= row["output_tokens"] <= 6  # the first chunk, which names the role, counts as one
    assert row["error"] == "stream_broken"
    assert gateway.pipeline.cache.stats()["entries"] == 0
    await nothing_is_left(gateway)


async def test_an_answer_that_was_cut_short_by_its_length_is_whole(gateway: InProcessGateway) -> None:
    await gateway.read(small_request(stream=True, max_tokens=2))
    assert gateway.record.finish == "length"
    await gateway.stored()


# -- refused -------------------------------------------------------------------------------------------------------


async def test_nothing_is_called_when_spend_cannot_be_written_down(
    state: State, database: Database, tmp_path: Path
) -> None:
    books = StrictBooks()
    books.full = True
    async with open_gateway(state, database, tmp_path, books=books) as gateway:
        with pytest.raises(LedgerUnavailable):
            await gateway.serve(small_request(), tenant(**ONE_AT_A_TIME))
        assert not gateway.provider.exchanges
        assert (gateway.record.status, gateway.record.error) == (503, "ledger_unavailable")
        assert gateway.quiet()
        books.full = False
        await gateway.read(small_request(), tenant(**ONE_AT_A_TIME))


async def test_a_spent_budget_refuses_before_the_cache(gateway: InProcessGateway) -> None:
    who = tenant(budget={"limit_usd": "0.0003", "window": "day"}, **ONE_AT_A_TIME)
    await gateway.read(small_request(max_tokens=9), who)
    await gateway.stored()
    gateway.provider.script(Reply(tokens=9, usage="wrong"))  # the backend claims ten times what it was asked for
    await gateway.read(small_request("another", max_tokens=9), who)
    with pytest.raises(BudgetExhausted, match="has spent its budget"):
        await gateway.serve(small_request(max_tokens=9), who)
    assert gateway.record.cache == "off"
    assert gateway.quiet()


async def test_a_stream_that_the_budget_does_not_cover_is_capped_and_what_came_is_billed(
    gateway: InProcessGateway,
) -> None:
    limit = 600 * OUTPUT
    who = tenant(budget={"limit_usd": str(limit / 1e12), "window": "day"}, **ONE_AT_A_TIME)
    gateway.provider.script(Reply(tokens=900, drip_s=0.0005))
    await gateway.read(small_request(stream=True), who)
    seen = b"".join(gateway.pieces)
    assert b'"finish_reason":"length"' in seen
    row = await only_row(gateway)
    assert row["outcome"] == "ok"
    assert 500 <= row["output_tokens"] == gateway.provider.last.tokens_sent < 600
    assert limit * 0.9 <= row["cost_pico"] <= limit
    assert gateway.record.attempts[0].output_cap == row["output_tokens"]
    assert gateway.pipeline.cache.stats()["entries"] == 0
    assert gateway.notes.count("settled") == 1
    assert gateway.quiet()


async def test_of_an_answer_that_comes_all_at_once_nothing_is_released_that_the_budget_does_not_cover(
    gateway: InProcessGateway,
) -> None:
    who = tenant(budget={"limit_usd": str(600 * OUTPUT / 1e12), "window": "day"}, **ONE_AT_A_TIME)
    word = b'data: {"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
    stop = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    gateway.provider.script(Raw((head + word * 900 + stop,), then="fin"))
    with pytest.raises(BudgetExhausted):
        await gateway.read(small_request(stream=True), who)
    assert b"".join(gateway.pieces).count(b"word") < 600
    row = await only_row(gateway)
    assert (row["outcome"], row["output_tokens"] >= 600) == ("interrupted", True)
    assert (gateway.record.status, gateway.record.error) == (429, "insufficient_quota")
    assert gateway.pipeline.cache.stats()["entries"] == 0
    assert gateway.quiet()


async def test_what_comes_with_the_terminating_event_is_released_with_it_once_the_money_is_settled(
    gateway: InProcessGateway,
) -> None:
    async with await gateway.serve(small_request(stream=True)) as reply:
        pieces: list[bytes] = []

        def take(piece: bytes) -> bool:
            assert "settled" not in gateway.notes
            pieces.append(piece)
            return len(pieces) % 2 == 0

        while await reply.pipe_to(take):
            pass
        assert gateway.notes.index("journalled") < gateway.notes.index("settled")
        assert reply.ending.endswith(b"data: [DONE]\n\n")
        data = b"".join(pieces) + reply.ending
    await gateway.stored()
    again = await gateway.read(small_request(stream=True))
    assert (gateway.record.cache, again.count(b"[DONE]"), data.count(b"[DONE]")) == ("exact", 1, 1)


async def test_a_request_over_the_limit_leaves_nothing_behind(gateway: InProcessGateway) -> None:
    gateway.provider.script(DRIP)
    async with await gateway.serve(small_request(stream=True), tenant(**ONE_AT_A_TIME)):
        with pytest.raises(LimitExceeded):
            await gateway.serve(small_request("second"), tenant(**ONE_AT_A_TIME))
        assert gateway.record.status == 429
    assert gateway.quiet()
    # A refusal is remembered for a moment, so that not everybody asks the server again.
    await until(lambda: gateway.read(small_request("third"), tenant(**ONE_AT_A_TIME)), not_yet=(LimitExceeded,))


async def test_asked_for_the_cache_only_a_miss_calls_nobody(gateway: InProcessGateway) -> None:
    with pytest.raises(CacheOnlyMiss):
        await gateway.serve(small_request(controls=Controls(cache="only")), tenant(**ONE_AT_A_TIME))
    assert not gateway.provider.exchanges
    await gateway.read(small_request(), tenant(**ONE_AT_A_TIME))


# -- an exit that fails --------------------------------------------------------------------------------------------


class Broken(Exception):
    """What nobody expected."""


def fails(*_: Any, **__: Any) -> Any:
    raise Broken("as the test wants it")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("part", ["cache.store", "router.learn", "telemetry.flights.add"])
async def test_a_part_that_fails_at_the_end_does_not_break_an_answer(
    gateway: InProcessGateway, stream: bool, part: str
) -> None:
    owner: Any = gateway.pipeline
    *path, name = part.split(".")
    for step in path:
        owner = getattr(owner, step)
    setattr(owner, name, fails)
    data = await gateway.read(small_request(stream=stream), tenant(**ONE_AT_A_TIME))
    assert data.endswith(b"[DONE]\n\n" if stream else b"}")
    row = await only_row(gateway)
    assert row["outcome"] == "ok"
    assert gateway.notes.count("settled") == gateway.notes.count("tokens settled") == 1
    assert gateway.record.status == 200
    await nothing_is_left(gateway)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_connection_that_cannot_be_closed_does_not_break_an_answer(
    gateway: InProcessGateway, stream: bool
) -> None:
    class Sour:
        """The answer, but for its end."""

        def __init__(self, real: Any) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        async def aclose(self) -> None:
            await self.real.aclose()
            raise Broken("the connection is gone")

    call = gateway.fleet.call

    async def sour(*args: Any, **more: Any) -> Any:
        return Sour(await call(*args, **more))

    gateway.fleet.call = sour  # type: ignore[method-assign]
    data = await gateway.read(small_request(stream=stream), tenant(**ONE_AT_A_TIME))
    assert data.endswith(b"[DONE]\n\n" if stream else b"}")
    assert (gateway.record.status, gateway.record.error) == (200, "")
    assert gateway.quiet()


# -- what a backend does not say -----------------------------------------------------------------------------------


async def test_tokens_that_a_backend_does_not_report_are_counted(gateway: InProcessGateway) -> None:
    gateway.provider.script(Reply(text="one two three four", usage="absent"))
    await gateway.read(small_request(stream=True))
    attempt = gateway.record.attempts[0]
    assert attempt.usage is not None
    assert attempt.usage == Usage(attempt.input_tokens, output_tokens=attempt.usage.output_tokens, estimated=True)
    assert 4 <= attempt.usage.output_tokens <= 6  # its first and last chunk carry no token


async def test_long_chunks_are_counted_by_their_text(gateway: InProcessGateway) -> None:
    """A stream cut after one chunk of many words: a token a chunk would bill next to nothing."""
    text = " ".join(f"word{number}" for number in range(200))
    frame = b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    event = frame + b'{"role":"assistant","content":"' + text.encode() + b'"},"finish_reason":null}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    gateway.provider.script(Raw((head + event, 0.02), then="fin"))
    with pytest.raises(StreamBroken):
        await gateway.read(small_request(stream=True))
    assert 150 < (await only_row(gateway))["output_tokens"] < 1000


# -- all of it at once ---------------------------------------------------------------------------------------------

STEPS = (
    Reply(),
    Reply(tokens=30, drip_s=0.001),
    Reply(tokens=30, drip_s=0.001, usage="absent"),
    Reply(tokens=9, drip_s=0.001, cut="rst", after=3),
    Reply(tokens=9, drip_s=0.001, cut="fin", after=3),
    Reply(tokens=9, error_event="oh", after=3),
    Reply(delay_s=0.05),
    Reply(prefill_s=0.05),
    Fail(500),
    Fail(429),
    Fail(400),
    Fail(200, body="html"),
    Fail(200, body="truncated"),
)


async def one(gateway: InProcessGateway, chance: random.Random, who: Tenant) -> None:
    """A client: patient, in a hurry, gone midway, gone before the beginning, or one that never reads."""
    temper = chance.choice(("patient", "patient", "hurried", "leaves midway", "leaves early", "never reads"))
    request = small_request(f"question {chance.random()}", stream=chance.random() < 0.6, max_tokens=40)
    record = record_of(request, who)
    deadline = asyncio.get_running_loop().time() + (0.03 if temper == "hurried" else 5.0)

    async def client() -> None:
        async with await gateway.pipeline.serve(request, who, record, deadline) as reply:
            if temper != "never reads":
                async for _ in with_ending(reply):
                    pass

    serving = asyncio.get_running_loop().create_task(client())
    if temper.startswith("leaves"):
        await asyncio.sleep(chance.random() * (0.01 if temper == "leaves early" else 0.05))
        serving.cancel()
    await asyncio.wait([serving])
    if not serving.cancelled() and (error := serving.exception()):
        assert isinstance(error, GatewayError)
        assert record.status == error.status
    assert all(attempt.outcome != "open" for attempt in record.attempts)


@pytest.mark.parametrize("seed", range(3))
async def test_however_requests_end_ledger_and_budget_agree_and_nothing_is_left(
    gateway: InProcessGateway, state: State, seed: int
) -> None:
    chance = random.Random(seed)
    who = tenant(budget={"limit_usd": 5, "window": "day"}, limits={"concurrent": 200}, cache={"enabled": False})
    gateway.provider.script(*chance.choices(STEPS, k=200))
    await asyncio.gather(*(one(gateway, chance, who) for _ in range(100)))
    await gateway.provider.settled()
    assert gateway.quiet()
    assert gateway.emitted == 100
    assert gateway.notes.count("admitted") == gateway.notes.count("place left") > 20
    rows = await gateway.rows()
    assert len({row["id"] for row in rows}) == len(rows) == gateway.fleet.stats()["attempts"]
    spent = sum(row["cost_pico"] for row in rows)

    async def settled() -> bool:
        (key,) = await state.call("KEYS", state.key("lease", "budget", "*", tag="search"))
        return spent <= int(await state.call("HGET", key, "s")) * 1000 <= spent + 1000 * len(rows)

    await until(settled)  # the counter gets it a moment later, each request rounded up to a nano-dollar
    (gauge,) = await state.call("KEYS", state.key("lease", "team", "concurrent", tag="search"))

    async def none_in_use() -> bool:
        return not any(int(part.split("=")[2]) for part in (await workers(state, gauge)).split(";") if part)

    await until(none_in_use)


async def workers(state: State, key: bytes) -> str:
    """What each worker has of a counter: name=leased=in use=…;"""
    return str(await state.call("HGET", key, "w") or b"", "ascii")


# -- what a request waits for --------------------------------------------------------------------------------------


class NotedState(State):
    """Notes which task sends commands."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.callers: list[str] = []

    def note(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.callers.append(task.get_name())

    async def call(self, *command: str | bytes | int | float) -> Any:
        self.note()
        return await super().call(*command)

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        self.note()
        return await super().pipeline(commands)

    async def run(self, *arguments: Any) -> Any:
        self.note()
        return await super().run(*arguments)


@pytest.fixture
async def state(state_url: str) -> AsyncIterator[NotedState]:
    state = NotedState(state_url, timeout_s=2.0, namespace=f"t{uuid.uuid4().hex[:12]}")
    await state.open()
    yield state
    await state.aclose()


async def test_a_common_miss_waits_for_its_backend_alone(gateway: InProcessGateway, state: NotedState) -> None:
    """Limits, budget and cache are on, and no request asks the state server for anything itself."""
    who = tenant(
        limits={"requests_per_minute": 10_000, "tokens_per_minute": 10_000_000, "concurrent": 50},
        budget={"limit_usd": 1000, "window": "month", "on_exhausted": "refuse"},
    )
    for number in range(60):  # leases follow demand
        await gateway.read(small_request(f"before {number}"), who)
        await asyncio.sleep(0.01)
    state.callers.clear()
    me = asyncio.current_task()
    assert me is not None
    for number in range(40):
        await gateway.read(small_request(f"question {number}", stream=number % 2 == 0), who)
        await asyncio.sleep(0.01)
    await until(lambda: state.callers)  # what is asked for all requests together is noted, so ours would have been
    assert me.get_name() not in state.callers
    assert gateway.record.cache == "miss"


async def test_a_fallback_dearer_than_the_named_model_is_marked_on_its_row(
    state: State, database: Database, tmp_path: Path
) -> None:
    def dear(provider: Provider) -> tuple[Backend, ...]:
        return (backend(provider, "dear", price=PriceEntry(input=Decimal(5), output=Decimal(50))),)

    async with open_gateway(state, database, tmp_path, more=dear) as gateway:
        who = tenant(models={"small": {"candidates": ["small", "dear"], "reference": "dear"}})
        gateway.provider.script(Fail(500), Fail(500))
        await gateway.read(small_request(model="small"), who)
        rows = [(row["backend"], row["outcome"], row["above_ceiling"]) for row in await gateway.rows()]
        assert rows == [("small", "failed", False), ("small", "failed", False), ("dear", "ok", True)]
        shown = flight(gateway.record)
        assert [attempt["above_ceiling"] for attempt in shown["attempts"]] == [False, False, True]
        assert shown["route"]["ceiling_usd"] == shown["route"]["considered"][0]["cost_usd"]
        stored = await Archive(database).find(gateway.record.request_id, "search")
        assert stored is not None
        assert [attempt["above_ceiling"] for attempt in stored["attempts"]] == [False, False, True]
