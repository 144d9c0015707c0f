"""A shared call: what its task does before and after the subscribers have the end of the answer."""

from __future__ import annotations

import asyncio

from gateway.cache.coalescing.registry import SharedCalls
from gateway.cache.coalescing.shared_call import SharedCall
from gateway.cache.coalescing.source import UNPAID, Form
from gateway.cache.coalescing.subscriber import Subscriber
from gateway.domain.answer import Answer, Sink
from gateway.runtime.write_batcher import WriteBatcher
from tests.cache.conftest import Given
from tests.runtime.test_write_batcher import Wire

FORM: Form = (True, True)


class Stream:
    """The source of an answer of one piece."""

    paid = UNPAID
    ending = b"end"

    def __init__(self, answer: Answer) -> None:
        self.answer: Answer | None = answer

    async def pipe_to(self, take: Sink) -> bool:
        take(b"piece ")
        return False


async def test_the_pieces_leave_memory_with_the_last_subscriber_of_a_call_that_has_ended() -> None:
    loop, calls, got = asyncio.get_running_loop(), SharedCalls(lambda call: None), list[bytes]()

    async def work(call: SharedCall) -> None:
        for _ in range(3):
            await call.publish(Stream(Given()))

    first = calls.start(calls.add(b"digest", FORM, loop.time() + 10), work)
    late = Subscriber(first.shared)
    assert await first.begin()
    assert await late.begin()
    await first.shared.finished()
    assert calls.bytes == 3 * len(b"piece ")
    assert not await first.pipe_to(lambda piece: not got.append(piece))  # type: ignore[func-returns-value]
    await first.aclose()
    assert calls.bytes == 3 * len(b"piece ")
    assert not await late.pipe_to(lambda piece: not got.append(piece))  # type: ignore[func-returns-value]
    await late.aclose()
    assert got == [b"piece "] * 6
    assert calls.bytes == 0


async def test_the_client_gets_the_end_before_the_answer_is_stored() -> None:
    loop, outgoing, log = asyncio.get_running_loop(), WriteBatcher(), list[tuple[str, bytes]]()
    calls, wire = SharedCalls(lambda call: None), Wire("client", log)

    async def work(call: SharedCall) -> None:
        await call.publish(Stream(Given()))
        log.append(("stored", b""))

    def take(piece: bytes) -> bool:
        outgoing.add(wire, piece, loop)
        return True

    subscriber = calls.start(calls.add(b"digest", FORM, loop.time() + 10), work)
    assert await subscriber.begin()
    assert not await subscriber.pipe_to(take)
    take(subscriber.ending)
    await subscriber.aclose()
    assert b"".join(piece for _, piece in log[:-1]) == b"piece end"
    assert log[-1] == ("stored", b"")
