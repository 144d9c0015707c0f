from __future__ import annotations

import asyncio

import pytest

from gateway.backends.relay import Relayed
from gateway.errors import AllBackendsFailed, DeadlineExceeded, StreamBroken
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Provider, Raw, Reply
from tests.support.requests import chat_request
from tests.support.waiting import until

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
COMMENT = b": still thinking\n\n"


def chunk(*events: bytes) -> bytes:
    data = b"".join(events)
    return b"%x\r\n%b\r\n" % (len(data), data)


END = b"0\r\n\r\n"


async def test_a_backend_that_says_done_and_then_hangs_keeps_nobody_waiting(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Raw((HEAD + chunk(ROLE, WORD, STOP, DONE),), then="hang"))
    answer = await caller_of().call(chat_request(stream=True))
    async with asyncio.timeout(20):
        assert await read(answer) == ROLE + WORD + STOP + DONE
    assert answer.complete
    await until(lambda: small.last.hung_up)


async def test_the_end_of_the_response_may_come_a_moment_after_done_and_the_connection_is_kept(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Raw((HEAD + chunk(ROLE, WORD, STOP, DONE), 0.02, END)))
    caller = caller_of()
    await read(await caller.call(chat_request(stream=True)))
    await read(await caller.call(chat_request()))
    assert small.connections == 1


async def test_a_whole_stream_in_one_piece_is_relayed_whole(small: Provider, caller_of: CallerOf) -> None:
    small.script(Raw((HEAD + chunk(ROLE, WORD, WORD, STOP, DONE) + END,)))
    answer = await caller_of().call(chat_request(stream=True))
    assert await read(answer) == ROLE + WORD + WORD + STOP + DONE
    assert answer.completion() is not None


async def test_a_stream_without_done_but_with_a_reason_to_end_is_whole(small: Provider, caller_of: CallerOf) -> None:
    small.script(Raw((HEAD + chunk(ROLE, WORD, STOP) + END,)))
    answer = await caller_of().call(chat_request(stream=True))
    assert await read(answer) == ROLE + WORD + STOP
    assert (answer.complete, answer.finish, answer.ending) == (True, "stop", b"")


async def test_comments_before_the_first_event_are_no_beginning_so_another_backend_can_still_answer(
    small: Provider, pair: Caller
) -> None:
    small.script(Raw((HEAD + chunk(COMMENT), 0.02, END)))
    data = await read(await pair.call(chat_request(stream=True)))
    assert COMMENT not in data
    assert pair.outcomes == [("small", "interrupted"), ("small", "ok")]


async def test_comments_are_relayed_with_the_first_event(small: Provider, caller_of: CallerOf) -> None:
    small.script(Raw((HEAD + chunk(COMMENT), 0.01, chunk(COMMENT), 0.01, chunk(ROLE, WORD, STOP, DONE) + END)))
    answer = await caller_of().call(chat_request(stream=True))
    assert (await read(answer)).count(COMMENT) == 2


async def test_a_client_sees_the_comments_when_the_first_event_takes_too_long(
    small: Provider, caller_of: CallerOf
) -> None:
    pieces = (HEAD + chunk(COMMENT), *(step for _ in range(20) for step in (0.02, chunk(COMMENT))))
    small.script(Raw((*pieces, chunk(ROLE, WORD, STOP, DONE) + END)))
    answer = await caller_of(backend_at(small, "small", first_byte_timeout=0.1)).call(chat_request(stream=True))
    assert answer.attempt is not None
    assert answer.attempt.chunks == 0
    assert (await read(answer)).endswith(ROLE + WORD + STOP + DONE)


@pytest.mark.parametrize(
    "body",
    [chunk(DONE) + END, chunk(b"<html>no</html>") + END, chunk(b'{"choices":[]}') + END, chunk(b"\x00\xff") + END],
    ids=["only done", "html", "plain json", "noise"],
)
async def test_what_is_no_answer_counts_as_a_failure_before_the_first_byte(
    small: Provider, pair: Caller, body: bytes
) -> None:
    small.script(Raw((HEAD + body,)))
    await read(await pair.call(chat_request(stream=True)))
    assert pair.outcomes[0] == ("small", "failed")
    assert pair.outcomes[1][1] == "ok"
    assert list(pair.books.closed.values()) == ["failed"]


async def test_garbage_in_the_middle_breaks_the_stream(small: Provider, caller_of: CallerOf) -> None:
    small.script(Raw((HEAD + chunk(ROLE, WORD), 0.02, b"this is no chunk size\r\n")))
    caller = caller_of()
    answer = await caller.call(chat_request(stream=True))
    with pytest.raises(StreamBroken):
        await read(answer)
    assert answer.delivered_text() == "word"
    await answer.aclose()


async def test_the_requests_deadline_holds_in_the_middle_of_a_stream_and_is_not_the_backends_fault(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Reply(tokens=1000, drip_s=0.01))
    caller = caller_of()
    answer = await caller.call(chat_request(stream=True), within_s=0.2)
    with pytest.raises(DeadlineExceeded):
        await read(answer)
    await answer.aclose()
    assert answer.delivered_text().startswith("t0 ")
    await until(lambda: small.last.hung_up)
    assert answer.attempt is not None
    assert answer.attempt.error == "deadline_exceeded"


async def test_the_backends_own_timeout_in_the_middle_of_a_stream_breaks_it(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Reply(tokens=1000, drip_s=0.01))
    answer = await caller_of(backend_at(small, "small", timeout=0.2)).call(chat_request(stream=True))
    with pytest.raises(StreamBroken, match="in time"):
        await read(answer)
    await answer.aclose()


async def test_streams_that_keep_breaking_open_the_breaker(small: Provider, caller_of: CallerOf) -> None:
    small.default = Reply(tokens=9, cut="rst", after=2)
    caller = caller_of()
    for _ in range(5):
        answer = await caller.call(chat_request(stream=True))
        with pytest.raises(StreamBroken):
            await read(answer)
        await answer.aclose()
    small.default = Reply(delay_s=5)
    probe = asyncio.create_task(caller.call(chat_request(stream=True)))
    await until(lambda: len(small.exchanges) == 6)
    with pytest.raises(AllBackendsFailed) as caught:
        await caller.call(chat_request(stream=True))
    assert caught.value.status == 503
    assert len(small.exchanges) == 6
    probe.cancel()


async def test_a_stream_that_falls_silent_is_broken_though_its_deadline_is_far(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Reply(tokens=9, cut="hang", after=2))
    answer = await caller_of(backend_at(small, "small", stall_timeout=0.05)).call(chat_request(stream=True))
    with pytest.raises(StreamBroken, match="did not go on in time"):
        await read(answer)
    await answer.aclose()
    await until(lambda: small.last.hung_up)


async def test_a_slow_stream_that_keeps_talking_is_no_silent_one(small: Provider, caller_of: CallerOf) -> None:
    small.script(Reply(tokens=12, drip_s=0.02))
    answer = await caller_of(backend_at(small, "small", stall_timeout=0.15)).call(chat_request(stream=True))
    assert b"t11" in await read(answer)


async def test_a_poured_stream_counts_a_piece_before_it_hands_it_on_and_can_be_stopped_anywhere(
    small: Provider, caller_of: CallerOf
) -> None:
    small.script(Reply(tokens=6, drip_s=0.005))
    answer = await caller_of().call(chat_request(stream=True))
    attempt = answer.attempt
    assert isinstance(answer, Relayed)
    assert attempt is not None
    seen: list[tuple[bytes, int]] = []

    def take(piece: bytes) -> bool:
        seen.append((piece, attempt.chunks))
        return len(seen) % 2 == 0

    stops = 0
    while await answer.pipe_to(take):
        stops += 1
    assert stops >= 3
    assert not await answer.pipe_to(take)
    words = [sum(f"t{number}".encode() in piece for number in range(6)) for piece, _ in seen]
    told = [count for _, count in seen]
    assert [sum(words[: place + 1]) for place in range(len(words))] == told
    assert (answer.complete, attempt.outcome, answer.ending) == (True, "ok", DONE)
    await answer.aclose()
