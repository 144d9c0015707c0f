from __future__ import annotations

import asyncio
from dataclasses import replace

import orjson
import pytest

from gateway.domain.routing.route import ContextPlan, Route
from gateway.errors import AllBackendsFailed, BackendRefused, StreamBroken
from tests.backends.conftest import KEY, CallerOf, backend_at
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request
from tests.support.waiting import until


async def test_a_plain_answer_goes_through_byte_for_byte(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of()
    answer = await caller.call(chat_request("hello", some_new_field={"a": 1}))
    assert (answer.stream, answer.status, answer.content_type) == (False, 200, "application/json")
    body = orjson.loads(await read(answer))
    assert body["choices"][0]["message"]["content"] == "You said: hello"
    assert answer.complete
    assert answer.finish == "stop"
    assert answer.delivered_text() == "You said: hello"
    sent = small.last
    assert sent.json["some_new_field"] == {"a": 1}
    assert sent.json["model"] == "model-of-small"
    assert sent.header(b"authorization") == f"Bearer {KEY}".encode()


async def test_the_serving_attempt_is_filled_and_left_open_in_the_books(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of()
    answer = await caller.call(chat_request("hello"))
    await read(answer)
    attempt = caller.record.attempts[0]
    assert attempt is answer.attempt is caller.record.served_by
    assert (attempt.outcome, attempt.status, attempt.input_tokens) == ("ok", 200, 7)
    assert attempt.usage == small.last.usage
    assert attempt.first_byte_at is not None
    assert attempt.ended_at is not None
    assert attempt.output_bytes == len(answer.ending)
    assert caller.books.still_open == [attempt.id]
    assert caller.hold.extended == [("small", 7)]
    assert caller.record.first_byte_ms is not None


async def test_a_stream_goes_through_and_holds_back_its_last_event(small: Provider, caller_of: CallerOf) -> None:
    small.script(Reply(tokens=5))
    caller = caller_of()
    answer = await caller.call(chat_request(stream=True))
    assert answer.stream
    pieces = [piece async for piece in pieces_of(answer)]
    assert b"[DONE]" not in b"".join(pieces)
    assert answer.ending == b"data: [DONE]\n\n"
    attempt = answer.attempt
    assert attempt is not None
    assert (attempt.outcome, attempt.usage) == ("ok", small.last.usage)
    assert attempt.chunks >= 5
    assert attempt.output_bytes > len(b"".join(pieces))  # the usage chunk was only for the gateway
    assert answer.complete
    assert answer.finish == "stop"
    assert answer.delivered_text() == "t0 t1 t2 t3 t4 "
    await answer.aclose()


async def test_first_bytes_are_there_when_call_returns_and_later_ones_come_one_by_one(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Reply(tokens=4, drip_s=0.01))
    answer = await caller_of().call(chat_request(stream=True))
    assert answer.attempt is not None
    assert answer.attempt.first_byte_at is not None
    assert not small.last.finished
    pieces = [piece async for piece in pieces_of(answer)]
    assert len(pieces) >= 4
    await answer.aclose()


async def test_a_connection_serves_again_after_a_plain_answer_and_after_a_stream(
    small: Provider, caller_of: CallerOf
) -> None:
    caller = caller_of()
    for stream in (False, True, True, False):
        await read(await caller.call(chat_request(stream=stream)))
    assert small.connections == 1


async def test_a_trimmed_request_is_sent_trimmed(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of()

    async def plan_for(_: object) -> ContextPlan:
        return ContextPlan(100, 40, drop=frozenset({0}))

    caller.plan_for = plan_for  # type: ignore[method-assign, assignment]
    messages = [{"role": "user", "content": "old"}, {"role": "user", "content": "new"}]
    await read(await caller.call(chat_request(messages=messages)))
    assert [message["content"] for message in small.last.json["messages"]] == ["new"]
    attempt = caller.record.attempts[0]
    assert (attempt.input_tokens, attempt.trimmed_tokens, caller.record.trimmed_tokens) == (40, 60, 60)
    assert caller.hold.extended == [("small", 40)]


@pytest.mark.parametrize(("asked", "sent"), [(9000, 100), (100, 100), (7, 7), (None, None)])
async def test_more_output_than_the_backend_can_give_is_not_asked_of_it(
    small: Provider, caller_of: CallerOf, asked: int | None, sent: int | None
) -> None:
    caller = caller_of(backend_at(small, "small", max_output_tokens=100))
    await read(await caller.call(chat_request(max_tokens=asked)))
    assert small.last.json["max_tokens"] == sent


async def test_an_openai_client_is_served_by_an_anthropic_backend(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of(backend_at(small, "claude", kind="anthropic"))
    body = orjson.loads(await read(await caller.call(chat_request("hello"))))
    assert body["choices"][0]["message"]["content"] == "You said: hello"
    assert small.last.path == "/v1/messages"
    assert small.last.header(b"x-api-key") == KEY.encode()
    streamed = await caller.call(chat_request("hello", stream=True))
    assert b'"content"' in await read(streamed)
    assert streamed.delivered_text() == "You said: hello"
    assert streamed.attempt is not None
    assert streamed.attempt.usage == small.last.usage


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_keeps_the_words_of_the_backend_and_is_not_tried_elsewhere(
    small: Provider, large: Provider, pair: Caller, stream: bool
) -> None:
    small.script(Fail(400, "temperature is too high", code="invalid_value", param="temperature"))
    with pytest.raises(BackendRefused) as caught:
        await pair.call(chat_request(stream=stream))
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "invalid_value", "temperature")
    assert "temperature is too high" in error.message
    assert not large.exchanges
    assert pair.outcomes == [("small", "failed")]
    assert pair.books.still_open == []
    assert pair.fleet.state(pair.fleet.backends[0]).available


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_trouble_with_the_gateways_own_account_is_not_the_clients_and_another_backend_serves(
    small: Provider, large: Provider, pair: Caller, status: int
) -> None:
    small.script(Fail(status, f"Incorrect API key provided: {KEY}"))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]
    assert len(small.exchanges) == 1


NOT_ABOUT_THE_KEY = [
    Fail(403, "Your request was flagged by our content policy", code="content_policy_violation"),
    Fail(403, "Country, region, or territory not supported", code="unsupported_country_region_territory"),
    Fail(403, "The model scripted-small is not available in this region"),
]


@pytest.mark.parametrize("step", NOT_ABOUT_THE_KEY)
async def test_a_403_about_the_request_is_the_clients_once_no_other_backend_answers(
    small: Provider, large: Provider, caller_of: CallerOf, pair: Caller, step: Fail
) -> None:
    small.script(step)
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]
    small.script(step)
    alone = caller_of()
    with pytest.raises(BackendRefused) as caught:
        await alone.call(chat_request())
    assert (caught.value.status, caught.value.message) == (403, step.message)
    assert alone.fleet.state(alone.fleet.backends[0]).available


async def test_no_error_carries_the_backends_key(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of()
    for step in (
        Fail(400, f"you sent {KEY}"),
        Fail(401, f"you sent {KEY}"),
        Fail(200, f"you sent {KEY}"),
    ):
        small.script(step)
        with pytest.raises((BackendRefused, AllBackendsFailed)) as caught:
            await caller.call(chat_request())
        assert KEY not in str(caught.value)
        assert KEY not in repr(caller.record.notes)
    small.script(Reply(error_event=f"you sent {KEY}", after=2))
    answer = await caller.call(chat_request(stream=True))
    with pytest.raises(StreamBroken) as broken:
        await read(answer)
    assert KEY not in str(broken.value)
    assert "[key]" in str(broken.value)
    await answer.aclose()


async def test_a_page_of_html_never_reaches_the_client(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of()
    for step in (Fail(400, body="html"), Fail(502, body="html"), Fail(502, body="html"), Fail(200, body="html")):
        small.script(step)
    for _ in range(3):
        with pytest.raises((BackendRefused, AllBackendsFailed)) as caught:
            await caller.call(chat_request())
        assert "<" not in str(caught.value)


async def test_a_stream_that_is_cut_raises_from_iteration_with_what_was_delivered_known(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Reply(tokens=10, drip_s=0.002, cut="rst", after=3))
    caller = caller_of()
    answer = await caller.call(chat_request(stream=True))
    got = bytearray()

    async def receive() -> None:
        async for piece in pieces_of(answer):
            got.extend(piece)

    with pytest.raises(StreamBroken, match="small"):
        await receive()
    assert b"t2" in got
    assert not answer.complete
    assert answer.completion() is None
    assert answer.ending == b""
    assert answer.delivered_text() == "t0 t1 t2 "
    attempt = answer.attempt
    assert attempt is not None
    assert (attempt.error, attempt.usage, attempt.outcome) == ("stream_broken", None, "open")
    assert attempt.chunks >= 3
    assert caller.books.still_open == [attempt.id]
    await answer.aclose()


async def test_an_error_event_ends_a_stream_with_its_words(small: Provider, caller_of: CallerOf) -> None:
    small.script(Reply(tokens=10, error_event="out of memory", after=3))
    answer = await caller_of().call(chat_request(stream=True))
    with pytest.raises(StreamBroken, match="out of memory"):
        await read(answer)
    await answer.aclose()


async def test_a_stream_closed_early_without_a_word_is_broken_too(small: Provider, caller_of: CallerOf) -> None:
    small.script(Reply(tokens=10, cut="fin", after=4, framing="eof", drip_s=0.002))
    answer = await caller_of().call(chat_request(stream=True))
    with pytest.raises(StreamBroken):
        await read(answer)
    await answer.aclose()


async def test_a_client_that_hangs_up_closes_the_backends_connection_at_once(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Reply(tokens=1000, drip_s=0.005))
    caller = caller_of()
    answer = await caller.call(chat_request(stream=True))
    async for piece in pieces_of(answer):
        if b"t1 " in piece:
            break
    await answer.aclose()
    await until(lambda: small.last.hung_up)
    assert small.last.chunks_sent < 20
    assert answer.delivered_text().startswith("t0 ")
    assert not answer.complete
    assert caller.fleet.state(caller.fleet.backends[0]).in_flight == 0
    await answer.aclose()  # twice is fine


async def test_an_answer_never_read_closes_the_connection_too(small: Provider, caller_of: CallerOf) -> None:
    small.script(Reply(tokens=1000, drip_s=0.005))
    answer = await caller_of().call(chat_request(stream=True))
    await answer.aclose()
    await until(lambda: small.last.hung_up)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_call_hangs_up_and_closes_its_attempt_as_interrupted(
    small: Provider, caller_of: CallerOf, stream: bool
) -> None:
    small.script(Reply(delay_s=10))
    caller = caller_of()
    calling = asyncio.get_running_loop().create_task(caller.call(chat_request(stream=stream)))
    await until(lambda: small.exchanges)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until(lambda: small.last.hung_up)
    assert list(caller.books.closed.values()) == ["interrupted"]
    assert caller.books.still_open == []
    usage = caller.record.attempts[0].usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (7, 0, True)
    assert caller.fleet.state(caller.fleet.backends[0]).in_flight == 0


async def test_a_usage_that_the_client_asked_for_is_relayed(small: Provider, caller_of: CallerOf) -> None:
    answer = await caller_of().call(chat_request(stream=True, stream_options={"include_usage": True}))
    assert b'"usage":{' in (await read(answer)).replace(b" ", b"")


async def test_a_backend_that_counts_no_tokens_leaves_the_usage_open(small: Provider, caller_of: CallerOf) -> None:
    small.script(Reply(usage="absent"), Reply(usage="absent"))
    caller = caller_of()
    for stream in (False, True):
        answer = await caller.call(chat_request(stream=stream))
        await read(answer)
        assert answer.attempt is not None
        assert answer.attempt.usage is None


async def test_figures_name_totals_and_every_backend(small: Provider, pair: Caller) -> None:
    small.script(Fail(400))
    with pytest.raises(BackendRefused):
        await pair.call(chat_request())
    await read(await pair.call(chat_request(stream=True), Route(pair.fleet.backends[1:], "test")))
    stats = pair.fleet.stats()
    assert stats["attempts"] == 2
    assert stats["failed"] == 1
    assert stats["small.available"] == 1
    assert stats["large.in_flight"] == 0
    assert float(stats["large.first_byte_ms"]) > 0
    assert pair.fleet.get("large") is pair.fleet.backends[1]
    assert pair.fleet.get("nobody") is None


async def test_what_one_client_sends_on_reaches_only_its_own_call(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of()
    for trace in (b"", b"00-aa-bb-01", b""):
        request = replace(chat_request(), headers={b"traceparent": trace} if trace else {})
        await read(await caller.call(request))
        assert small.last.header(b"traceparent") == (trace or None)
    await read(await caller.call(chat_request(stream=True)))
    assert small.last.header(b"accept") == b"text/event-stream"
    ids = [exchange.header(b"x-request-id") for exchange in small.exchanges]
    assert len(set(ids)) == 4
    assert None not in ids


async def test_the_plans_cache_fields_are_sent_in_front_of_the_clients_bytes(
    small: Provider, caller_of: CallerOf
) -> None:
    caller = caller_of()

    async def plan_for(_: object) -> ContextPlan:
        return ContextPlan(2000, 2000, cache_fields=b'"prompt_cache_key":"k",')

    caller.plan_for = plan_for  # type: ignore[method-assign, assignment]
    asked = chat_request(seed=7)
    await read(await caller.call(asked))
    assert small.last.body.startswith(b'{"prompt_cache_key":"k",')
    assert small.last.json == {"prompt_cache_key": "k", **asked.body, "model": "model-of-small"}
