from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest

from gateway.admission.rate_limits import Permit, RateLimits, duration
from gateway.domain.tenant import Tenant
from gateway.errors import LimitExceeded
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from tests.admission.conftest import record, tenant
from tests.support.waiting import until


@contextmanager
def leaving(permit: Permit) -> Iterator[Permit]:
    """Leaves in the end, as the pipeline does it."""
    try:
        yield permit
    finally:
        permit.release()


@asynccontextmanager
async def limits_on(state: State, **more: Any) -> AsyncIterator[RateLimits]:
    limits = RateLimits(state, **more)
    await limits.open()
    try:
        yield limits
    finally:
        await limits.aclose()


async def permit(limits: RateLimits, who: Tenant, times: int, tokens: int = 10) -> list[Permit]:
    found = await asyncio.gather(
        *(limits.admit(who, tokens, record(who)) for _ in range(times)), return_exceptions=True
    )
    assert all(isinstance(one, Permit | LimitExceeded) for one in found)
    return [one for one in found if isinstance(one, Permit)]


async def refused(limits: RateLimits, who: Tenant, tokens: int = 10) -> LimitExceeded:
    with pytest.raises(LimitExceeded) as met:
        await limits.admit(who, tokens, record(who))
    return met.value


async def test_a_team_without_limits_is_admitted_without_a_header(state: State) -> None:
    async with limits_on(state) as limits:
        who = tenant()
        seen = record(who)
        with leaving(await limits.admit(who, 10, seen)) as one:
            one.settle(99)
        assert seen.ratelimit == {}


async def test_exactly_as_many_requests_as_the_limit_says_pass_two_workers(state: State) -> None:
    who = tenant(limits={"requests_per_minute": 25})
    async with limits_on(state) as one, limits_on(state) as two:
        passed = await asyncio.gather(permit(one, who, 30), permit(two, who, 30))
        assert sum(map(len, passed)) == 25
        error = await refused(one, who)
        assert error.status == 429
        assert error.retry_after_s is not None
        assert 55 < error.retry_after_s <= 60
        assert "Team search has used its 25 requests" in error.message
        assert "limits.requests_per_minute" in error.message


async def test_headers_tell_limit_rest_and_reset(state: State) -> None:
    who = tenant(limits={"requests_per_minute": 5, "tokens_per_minute": 1000})
    async with limits_on(state) as limits:
        seen = record(who)
        await limits.admit(who, 300, seen)
        assert seen.ratelimit == {
            b"x-ratelimit-limit-requests": b"5",
            b"x-ratelimit-remaining-requests": b"4",
            b"x-ratelimit-reset-requests": b"1m0s",
            b"x-ratelimit-limit-tokens": b"1000",
            b"x-ratelimit-remaining-tokens": b"700",
            b"x-ratelimit-reset-tokens": b"1m0s",
        }


async def test_of_team_and_key_the_tighter_limit_is_shown_and_named(state: State) -> None:
    who = tenant(limits={"requests_per_minute": 50, "per_key": {"requests_per_minute": 2}})
    async with limits_on(state) as limits:
        seen = record(who)
        await limits.admit(who, 10, seen)
        assert seen.ratelimit[b"x-ratelimit-limit-requests"] == b"2"
        await limits.admit(who, 10, seen)
        error = await refused(limits, who)
        assert "Key k1" in error.message
        assert "limits.per_key.requests_per_minute" in error.message
        assert len(await permit(limits, tenant("k2", limits=who.policy.limits), 5)) == 2


async def test_tokens_are_charged_at_once_and_corrected_when_known(state: State) -> None:
    who = tenant(limits={"tokens_per_minute": 1000})
    async with limits_on(state) as limits:
        first = await limits.admit(who, 900, record(who))
        error = await refused(limits, who, 200)
        assert "about 200 tokens" in error.message
        assert error.retry_after_s is not None
        first.settle(100)
        first.settle(900)  # only the first counts
        second = await until(lambda: limits.admit(who, 800, record(who)), not_yet=(LimitExceeded,))
        second.settle(2000)

        async def nothing_left() -> bool:
            return not await permit(limits, who, 1, tokens=1)

        await until(nothing_left)


async def test_a_request_that_no_backend_answered_costs_no_tokens(state: State) -> None:
    who = tenant(limits={"tokens_per_minute": 1000})
    async with limits_on(state) as limits:
        for _ in range(3):
            with leaving(await until(lambda: limits.admit(who, 900, record(who)), not_yet=(LimitExceeded,))):
                pass


async def test_a_request_larger_than_the_limit_is_told_that_waiting_is_no_help(state: State) -> None:
    who = tenant(limits={"tokens_per_minute": 1000})
    async with limits_on(state) as limits:
        error = await refused(limits, who, 1001)
        assert error.retry_after_s is None
        assert "Shorten it" in error.message


async def test_places_among_the_concurrent_ones_come_back(state: State) -> None:
    who = tenant(limits={"concurrent": 3})
    async with limits_on(state) as limits:
        running = await permit(limits, who, 5)
        assert len(running) == 3
        error = await refused(limits, who)
        assert "3 requests in progress" in error.message
        with ExitStack() as exits:
            for one in running:
                exits.callback(one.release)
        for _ in range(3):
            await until(lambda: limits.admit(who, 10, record(who)), not_yet=(LimitExceeded,))
        await refused(limits, who)


async def test_a_changed_policy_holds_from_the_next_request(state: State) -> None:
    async with limits_on(state) as limits:
        assert len(await permit(limits, tenant(limits={"requests_per_minute": 2}), 5)) == 2
        changed = tenant(limits={"requests_per_minute": 4})
        for _ in range(2):
            await until(lambda: limits.admit(changed, 10, record(changed)), not_yet=(LimitExceeded,))
        await refused(limits, changed)


async def test_what_a_lease_gives_while_the_server_is_away_is_told_too(server: EmbeddedServer) -> None:
    who = tenant(limits={"requests_per_minute": 100_000})
    state = State(server.url)
    await state.open()
    assert server.pid is not None
    async with limits_on(state) as limits:
        for _ in range(20):
            await limits.admit(who, 10, record(who))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await until(lambda: limits.stats()["leases.failed"])
            seen = record(who)
            await limits.admit(who, 10, seen)
            assert seen.degraded == {"state"}
            assert limits.stats()["on_share"] == 0
        finally:
            os.kill(server.pid, signal.SIGCONT)
    await state.aclose()


async def test_with_the_server_frozen_a_worker_goes_on_with_its_share(server: EmbeddedServer) -> None:
    who = tenant(limits={"requests_per_minute": 40, "concurrent": 100})
    state = State(server.url)
    await state.open()
    assert server.pid is not None
    async with limits_on(state, workers=4) as limits:
        await limits.admit(who, 10, record(who))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            seen = []
            for _ in range(9):
                seen.append(record(who))
                await limits.admit(who, 10, seen[-1])
            assert seen[-1].degraded == {"state"}
            error = await refused(limits, who)
            assert error.retry_after_s is not None
            assert 50 < error.retry_after_s <= 60
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await until(lambda: state.healthy)
        await asyncio.sleep(0.5)
        assert len(await permit(limits, who, 60)) == 30
    await state.aclose()


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.12, "120ms"), (0.0001, "1ms"), (12.46, "12.5s"), (60, "1m0s"), (75.5, "1m15.5s")]
)
def test_times_are_written_as_openai_does(seconds: float, written: str) -> None:
    assert duration(seconds) == written
