"""The load against the upstream, in one loop: right answers are counted, and a lying upstream is found out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from loadtests.agent_answers import PATHS
from loadtests.client import Load, Outcome, Run, Session, spread_ms
from loadtests.questions import Dialect, Shape, tokens_of
from loadtests.upstream import Answers, Counts, Upstream


@asynccontextmanager
async def serving(
    answers: Answers, upstream: Callable[[Counts, Answers], asyncio.Protocol] = Upstream
) -> AsyncIterator[tuple[int, Counts]]:
    counts = Counts()
    server = await asyncio.get_running_loop().create_server(lambda: upstream(counts, answers), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], counts
    finally:
        server.close()


async def outcome_of(port: int, shape: Shape, run: Run, concurrency: int = 4) -> Outcome:
    session = Session(Load("127.0.0.1", port, "key", "m", concurrency, shape))
    await session.open()
    try:
        return await session.run(run)
    finally:
        session.close()
        await asyncio.sleep(0.01)


def agent(dialect: Dialect) -> Shape:
    return Shape("calls", bytes=40 * 1024, turns=10, at_a_time=4, chunks=5, dialect=dialect)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(bytes=32 * 1024),
        Shape("burst"),
        Shape("paced", chunks=5),
        *(agent(dialect) for dialect in PATHS),
    ],
    ids=lambda shape: f"{shape.kind}-{shape.bytes}-{shape.dialect}",
)
async def test_every_answer_is_right_and_both_sides_count_the_same(shape: Shape) -> None:
    async with serving(Answers()) as (port, counts):
        outcome = await outcome_of(port, shape, Run(100, 30))
    told = [tokens_of(number, shape.base_tokens) for number in range(100, 130)]
    assert (outcome.right, outcome.wrong, outcome.lost, outcome.faults) == (30, 0, 0, [])
    assert counts.requests == 30
    assert counts.input_tokens == outcome.input_tokens == sum(each.input for each in told)
    assert counts.output_tokens == outcome.output_tokens == sum(each.output for each in told)
    assert set(outcome.latency_ms) == {"p50", "p90", "p99", "max", "mean"}


async def test_paced_chunks_tell_how_long_they_were_on_their_way() -> None:
    async with serving(Answers()) as (port, _):
        outcome = await outcome_of(port, Shape("paced", chunks=5), Run(1, 4))
    assert 0 < outcome.transit_ms["p50"] <= outcome.transit_ms["max"] < 5000


async def test_distinct_questions_are_asked_over_and_over_from_where_the_last_run_ended() -> None:
    class Noting(Answers):
        def plain(self, number: int, base: int) -> bytes:
            seen.append(number)
            return super().plain(number, base)

    seen: list[int] = []
    async with serving(Noting()) as (port, _):
        await outcome_of(port, Shape(), Run(50, 5, distinct=3, skip=4), concurrency=1)
    assert seen == [51, 52, 50, 51, 52]


async def test_an_upstream_that_answers_another_question_is_found_out() -> None:
    class Lying(Answers):
        def plain(self, number: int, base: int) -> bytes:
            return super().plain(number + (number % 5 == 0), base)

    async with serving(Lying()) as (port, _):
        outcome = await outcome_of(port, Shape(), Run(100, 20))
    assert (outcome.right, outcome.wrong, outcome.lost) == (16, 4, 0)
    assert "another question's text" in outcome.faults[0]


async def test_an_upstream_that_leaves_a_chunk_out_is_found_out() -> None:
    class Forgetful(Answers):
        def burst(self, number: int, chunks: int) -> bytes:
            return b"".join(self.stream(number, chunks, stamped=False)[1:])

    async with serving(Forgetful()) as (port, _):
        outcome = await outcome_of(port, Shape("burst", chunks=9), Run(1, 6))
    assert (outcome.right, outcome.wrong) == (0, 6)
    assert "8 of 9 chunks" in outcome.faults[0]


async def test_answers_that_break_off_are_lost_and_the_run_still_ends() -> None:
    class Breaking(Upstream):
        def answer(self, line: bytes, body: bytes) -> None:
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nhalf")
            self.transport.close()

    async with serving(Answers(), Breaking) as (port, _):
        outcome = await outcome_of(port, Shape(), Run(1, 50))
    assert outcome.right == 0
    assert outcome.lost == 4, "one a connection"


async def test_a_refusal_is_a_wrong_answer_with_its_words() -> None:
    class Refusing(Upstream):
        def answer(self, line: bytes, body: bytes) -> None:
            self.transport.write(b"HTTP/1.1 429 Too Many\r\ncontent-length: 4\r\n\r\nwait")

    async with serving(Answers(), Refusing) as (port, _):
        outcome = await outcome_of(port, Shape(), Run(1, 8))
    assert (outcome.right, outcome.wrong) == (0, 8)
    assert "429" in outcome.faults[0]
    assert "wait" in outcome.faults[0]


async def test_a_server_that_ends_connections_after_an_answer_is_asked_on_new_ones() -> None:
    class Polite(Upstream):
        def answer(self, line: bytes, body: bytes) -> None:
            super().answer(line, body)
            self.transport.close()

    class Closing(Answers):
        def plain(self, number: int, base: int) -> bytes:
            return super().plain(number, base).replace(b"\r\n", b"\r\nconnection: close\r\n", 1)

    async with serving(Closing(), Polite) as (port, _):
        outcome = await outcome_of(port, Shape(), Run(1, 20))
    assert (outcome.right, outcome.wrong, outcome.lost) == (20, 0, 0)


async def test_answers_of_a_degraded_gateway_are_counted_by_the_part_that_is_down() -> None:
    class Degraded(Answers):
        def plain(self, number: int, base: int) -> bytes:
            whole = super().plain(number, base)
            return whole.replace(b"\r\n", b"\r\nx-thriftgate-degraded: state\r\n", 1) if number % 2 else whole

    async with serving(Degraded()) as (port, _):
        outcome = await outcome_of(port, Shape(), Run(1, 20))
    assert (outcome.right, outcome.degraded) == (20, {"state": 10})


def test_percentiles_of_nothing_are_nothing() -> None:
    from array import array

    assert spread_ms(array("q")) == {}
    assert spread_ms(array("q", [1_000_000, 3_000_000, 2_000_000]))["p50"] == 2.0
