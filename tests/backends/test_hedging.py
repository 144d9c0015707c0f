from __future__ import annotations

import asyncio

import pytest

from gateway.domain.answer import Answer
from gateway.domain.policy import Policy
from gateway.domain.routing.route import Considered, Route
from gateway.errors import AllBackendsFailed
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.requests import chat_request
from tests.support.waiting import until

HEDGING = Policy(team="search", hedging={"enabled": True, "share": "100%"})
SLOW_S = 30.0


@pytest.fixture
async def pair(small: Provider, large: Provider, caller_of: CallerOf) -> Caller:
    """Whose first backend's first tokens usually take a tenth of a second."""
    pair = caller_of(backend_at(small, "small"), backend_at(large, "large", tier="large"))
    await usual(small, pair, 20)
    small.default = large.default = Reply(text="quick")
    return Caller(pair.fleet, policy=HEDGING)


async def usual(small: Provider, pair: Caller, times: int) -> None:
    small.default = Reply(delay_s=0.1)

    async def once() -> None:
        await read(await Caller(pair.fleet).call(chat_request(stream=True)))

    await asyncio.gather(*(once() for _ in range(times)))
    small.exchanges.clear()


def call(pair: Caller, *, stream: bool = True) -> asyncio.Task[Answer]:
    return asyncio.get_running_loop().create_task(pair.call(chat_request(stream=stream)))


async def test_the_second_wins_where_the_first_is_slow_and_the_slow_one_is_on_the_ledger(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(Reply(delay_s=SLOW_S))
    answer = await call(pair)
    assert b"quick" in await read(answer)
    assert pair.outcomes == [("small", "interrupted"), ("large", "ok")]
    loser, winner = pair.record.attempts
    assert (loser.kind, winner.kind) == ("hedge", "")
    assert (loser.error, pair.books.closed) == ("hedge", {loser.id: "interrupted"})
    assert loser.usage is not None
    assert loser.usage.input_tokens == pair.tokens
    assert pair.record.served_by is answer.attempt is winner is pair.hold.followed
    assert [name for name, _ in pair.hold.extended[-2:]] == ["small", "large"]
    await until(lambda: small.last.hung_up)
    assert pair.fleet.stats()["hedged"] == 1
    assert pair.fleet.stats()["small.in_flight"] == 0


async def test_the_first_wins_where_it_begins_after_all(small: Provider, large: Provider, pair: Caller) -> None:
    small.script(Reply(text="late", delay_s=0.5))
    large.script(Reply(delay_s=SLOW_S))
    answer = await call(pair)
    assert b"late" in await read(answer)
    assert pair.outcomes == [("small", "ok"), ("large", "interrupted")]
    assert [attempt.kind for attempt in pair.record.attempts] == ["", "hedge"]
    assert pair.hold.followed is pair.record.attempts[0]
    await until(lambda: large.last.hung_up)


async def test_no_second_one_is_asked_where_the_first_begins_in_time(large: Provider, pair: Caller) -> None:
    await read(await call(pair))
    assert not large.exchanges
    assert pair.fleet.stats()["hedged"] == 0


async def test_a_first_that_fails_is_no_reason_to_give_up_the_second(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(Fail(401, delay_s=0.5))
    large.script(Reply(text="mine", prefill_s=0.8))
    assert b"mine" in await read(await call(pair))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]
    assert len(large.exchanges) == 1


@pytest.mark.parametrize(
    ("adequacy", "observed", "asked"), [(0.8, False, "small"), (0.95, False, "large"), (0.95, True, "small")]
)
async def test_only_who_is_good_enough_is_asked_beside_the_first(
    small: Provider, large: Provider, pair: Caller, adequacy: float, observed: bool, asked: str
) -> None:
    first, other = pair.fleet.backends
    known = (Considered(first.name, adequacy=1.0), Considered(other.name, adequacy=adequacy))
    route = Route((first, other), "test", reference=first, considered=known, quality=0.9)
    route.observed = other if observed else None
    small.script(Reply(delay_s=SLOW_S))
    assert b"quick" in await read(await pair.call(chat_request(stream=True), route))
    assert [attempt.backend.name for attempt in pair.record.attempts] == ["small", asked]
    assert len(large.exchanges) == (asked == "large")


async def test_a_backend_above_the_ceiling_is_a_fallback_and_not_asked_beside_the_first(
    small: Provider, large: Provider, pair: Caller
) -> None:
    route = Route(pair.fleet.backends, "test", above=frozenset({"large"}))
    small.script(Reply(delay_s=SLOW_S))
    assert b"quick" in await read(await pair.call(chat_request(stream=True), route))
    assert pair.outcomes == [("small", "interrupted"), ("small", "ok")]
    assert not large.exchanges


async def test_when_both_fail_the_client_hears_of_both(small: Provider, large: Provider, pair: Caller) -> None:
    small.script(Fail(401, delay_s=0.5))
    large.script(Fail(401, delay_s=0.5))
    with pytest.raises(AllBackendsFailed, match=r"small .*large "):
        await call(pair)
    assert pair.outcomes == [("small", "failed"), ("large", "failed")]
    assert pair.books.still_open == []


async def test_the_second_is_the_same_backend_where_there_is_no_other(small: Provider, pair: Caller) -> None:
    small.script(Reply(delay_s=SLOW_S), Reply(text="again"))
    answer = await pair.call(chat_request(stream=True), Route(pair.fleet.backends[:1], "alone"))
    assert b"again" in await read(answer)
    assert pair.outcomes == [("small", "interrupted"), ("small", "ok")]


async def test_no_budget_for_both_means_to_wait(small: Provider, large: Provider, pair: Caller) -> None:
    small.script(Reply(text="late", delay_s=0.3))
    pair.hold.too_dear = ("large",)
    assert b"late" in await read(await call(pair))
    assert pair.outcomes == [("small", "ok")]
    assert not large.exchanges


async def test_only_a_share_of_the_streams_is_asked_for_twice(small: Provider, large: Provider, pair: Caller) -> None:
    for _ in range(5):  # so that a few slow ones change nothing about what is usual
        await usual(small, pair, 21)
    pair.policy = Policy(team="thrifty", hedging={"enabled": True, "share": "25%"})
    small.default = Reply(text="late", delay_s=0.5)
    for _ in range(8):
        await read(await call(pair))
    assert pair.fleet.stats()["hedged"] == len(large.exchanges) == 2


async def test_plain_requests_and_other_policies_are_not_hedged(small: Provider, large: Provider, pair: Caller) -> None:
    small.script(Reply(text="late", delay_s=0.2), Reply(text="late", delay_s=0.2))
    await read(await call(pair, stream=False))
    pair.policy = Policy(team="search")
    await read(await call(pair))
    assert not large.exchanges


async def test_a_caller_that_leaves_closes_both_attempts_once(small: Provider, large: Provider, pair: Caller) -> None:
    small.script(Reply(delay_s=SLOW_S))
    large.script(Reply(delay_s=SLOW_S))
    calling = call(pair)
    await until(lambda: large.exchanges)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert list(pair.books.closed.values())[-2:] == ["interrupted", "interrupted"]
    await until(lambda: small.last.hung_up)
    await until(lambda: large.last.hung_up)
    assert pair.fleet.stats()["small.in_flight"] == pair.fleet.stats()["large.in_flight"] == 0
