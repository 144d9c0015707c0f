from __future__ import annotations

import asyncio

import pytest

from gateway.backends.resilience.breaker import BreakerSettings
from gateway.backends.resilience.pauses import pause_after
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.routing.route import ContextPlan
from gateway.errors import (
    AllBackendsFailed,
    BackendError,
    BackendFailed,
    BackendGarbage,
    BackendRateLimited,
    BackendRefused,
    BackendTimeout,
    BackendUnreachable,
    BudgetExhausted,
    ContextTooLong,
    DeadlineExceeded,
    LedgerUnavailable,
    Overloaded,
)
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Provider, Raw, Reply
from tests.support.requests import chat_request
from tests.support.waiting import until


async def test_a_backend_that_fails_once_is_asked_again(small: Provider, large: Provider, pair: Caller) -> None:
    small.script(Fail(500))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("small", "ok")]
    assert [attempt.number for attempt in pair.record.attempts] == [1, 2]
    assert not large.exchanges
    assert pair.settled()
    assert pair.hold.extended == [("small", 7), ("small", 7)]


async def test_the_backend_is_told_the_attempts_id(small: Provider, pair: Caller) -> None:
    small.script(Fail(500))
    await read(await pair.call(chat_request()))
    told = [exchange.header(b"x-request-id") for exchange in small.exchanges]
    assert told == [attempt.id.encode() for attempt in pair.record.attempts]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_that_fails_twice_gives_way_to_the_next(small: Provider, pair: Caller, stream: bool) -> None:
    small.script(Fail(503), Fail(500, body="html"))
    answer = await pair.call(chat_request(stream=stream))
    await read(answer)
    assert pair.outcomes == [("small", "failed"), ("small", "failed"), ("large", "ok")]
    assert [attempt.status for attempt in pair.record.attempts] == [503, 500, 200]
    assert pair.record.served_by is answer.attempt is pair.record.attempts[2]
    assert pair.settled()


def says(status: int, should_retry: str) -> Raw:
    return Raw(
        (b"HTTP/1.1 %d Oh\r\nx-should-retry: %b\r\ncontent-length: 2\r\n\r\n{}" % (status, should_retry.encode()),)
    )


async def test_a_backend_that_says_not_to_ask_again_is_believed_and_its_word_passed_on(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(says(500, "false"))
    large.script(says(503, "false"))
    with pytest.raises(AllBackendsFailed) as caught:
        await pair.call(chat_request())
    assert not caught.value.retryable
    assert pair.outcomes == [("small", "failed"), ("large", "failed")]
    small.script(says(500, "true"), Fail(500))
    large.script(says(503, "false"))
    with pytest.raises(AllBackendsFailed) as caught:
        await pair.call(chat_request())
    assert caught.value.retryable


async def test_a_refusal_may_be_worth_another_try(small: Provider, pair: Caller) -> None:
    small.script(says(422, "true"))
    with pytest.raises(BackendRefused) as caught:
        await pair.call(chat_request())
    assert caught.value.retryable


async def test_an_error_whose_body_never_ends_is_hung_up_on(small: Provider, pair: Caller) -> None:
    small.script(Raw((b"HTTP/1.1 400 Bad Request\r\ncontent-length: 999999\r\n\r\n{",), then="hang"))
    small.script(Raw((b"HTTP/1.1 500 Oh\r\ncontent-length: 999999\r\n\r\n{",), then="hang"))
    with pytest.raises(BackendRefused) as caught:
        await pair.call(chat_request(), within_s=0.4)
    assert caught.value.status == 400
    await read(await pair.call(chat_request()))
    await until(lambda: [one.hung_up for one in small.exchanges] == [True, True, False])


async def test_a_refused_connection_gives_way_to_the_next(small: Provider, pair: Caller) -> None:
    await small.refuse()
    await read(await pair.call(chat_request(stream=True)))
    assert pair.outcomes == [("small", "failed"), ("small", "failed"), ("large", "ok")]
    assert pair.record.attempts[0].error == "backend_unreachable"


async def test_another_backend_that_may_recover_makes_a_try_worthwhile(
    small: Provider, large: Provider, caller_of: CallerOf
) -> None:
    subject = caller_of(backend_at(small, "small"), backend_at(large, "large"), breaker_settings=BreakerSettings(2))
    small.default, large.default = Fail(500), Fail(401)
    for skipped in (False, True):
        with pytest.raises(AllBackendsFailed) as caught:
            await subject.call(chat_request())
        assert caught.value.retryable
        assert (("small", "failed") not in subject.outcomes) is skipped
    small.default = Fail(401)
    alone = caller_of(backend_at(small, "small"))
    with pytest.raises(AllBackendsFailed) as caught:
        await alone.call(chat_request())
    assert not caught.value.retryable


@pytest.mark.parametrize("cut", ["fin", "rst"])
async def test_a_connection_closed_instead_of_an_answer_is_a_failure(small: Provider, pair: Caller, cut: str) -> None:
    small.script(Fail(cut=cut), Fail(cut=cut))  # type: ignore[arg-type]
    await read(await pair.call(chat_request()))
    assert pair.outcomes[-1] == ("large", "ok")
    assert pair.settled()


async def test_a_plain_body_that_breaks_off_is_tried_again(small: Provider, pair: Caller) -> None:
    small.script(Reply(tokens=50, cut="rst"))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "interrupted"), ("small", "ok")]


async def test_a_lone_backend_is_called_again_after_a_short_retry_after(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of()
    small.script(Fail(429, retry_after="0.05"))
    started = asyncio.get_running_loop().time()
    await read(await caller.call(chat_request()))
    assert asyncio.get_running_loop().time() - started >= 0.05
    assert caller.outcomes == [("small", "failed"), ("small", "ok")]
    assert caller.settled()


async def test_requests_to_a_lone_backend_wait_for_the_end_of_its_short_pause(
    small: Provider, caller_of: CallerOf
) -> None:
    caller = caller_of()
    small.script(Fail(429, retry_after="0.3"))
    first = asyncio.get_running_loop().create_task(caller.call(chat_request()))
    await until(lambda: caller.fleet.state(caller.fleet.backends[0]).limited)
    others = [Caller(caller.fleet) for _ in range(3)]
    for answer in await asyncio.gather(first, *(other.call(chat_request()) for other in others)):
        await read(answer)
    assert [other.outcomes for other in others] == [[("small", "ok")]] * 3, "none of them was refused"
    assert len(small.exchanges) == 5


@pytest.mark.parametrize("retry_after", ["1", "2", "30", ""])
async def test_a_limited_backend_gives_way_at_once_and_is_not_called_during_its_pause(
    small: Provider, pair: Caller, retry_after: str
) -> None:
    small.default = Fail(429, retry_after=retry_after)
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]
    assert pair.settled()
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("large", "ok")]
    assert pair.fleet.stats()["retries"] == 0, "nothing was waited for"


@pytest.mark.parametrize("retry_after", ["0.2", ""])
async def test_if_all_are_limited_the_first_whose_short_pause_ends_is_called_again(
    small: Provider, large: Provider, pair: Caller, retry_after: str
) -> None:
    small.script(Fail(429, retry_after="30"))
    large.script(Fail(429, retry_after=retry_after))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "failed"), ("large", "ok")]
    assert pair.settled()


async def test_a_pause_beyond_the_deadline_is_not_waited_for(small: Provider, caller_of: CallerOf) -> None:
    small.script(Fail(429, retry_after="2"))
    with pytest.raises(AllBackendsFailed) as caught:
        await caller_of().call(chat_request(), within_s=1.0)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 2.0)


async def test_without_retry_after_a_lone_backend_stays_open_to_others(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of()
    small.script(Fail(429))
    with pytest.raises(AllBackendsFailed):
        await caller.call(chat_request())
    await read(await caller.call(chat_request()))
    assert len(small.exchanges) == 2


async def test_after_a_long_retry_after_the_next_backend_serves_and_the_limited_one_is_left_alone(
    small: Provider, pair: Caller
) -> None:
    small.script(Fail(429, retry_after="20"))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]
    assert pair.fleet.state(pair.fleet.backends[0]).reason == "rate-limited"
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("large", "ok")]
    assert len(small.exchanges) == 1


async def test_all_rate_limited_is_429_with_the_shortest_wait_also_while_they_are_left_alone(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(Fail(429, retry_after="20"))
    large.script(Fail(429, retry_after="10"))
    for _ in range(2):
        with pytest.raises(AllBackendsFailed) as caught:
            await pair.call(chat_request())
        assert caught.value.status == 429
        assert caught.value.retry_after_s == pytest.approx(10, abs=0.5)
    assert len(small.exchanges) == len(large.exchanges) == 1


async def test_a_rate_limit_and_a_failure_are_502(small: Provider, large: Provider, pair: Caller) -> None:
    small.default = Fail(429)
    large.script(Fail(500), Fail(500))
    with pytest.raises(AllBackendsFailed) as caught:
        await pair.call(chat_request())
    assert caught.value.status == 502
    assert pair.books.still_open == []
    assert pair.outcomes == [("small", "failed"), *[("large", "failed")] * 2, ("small", "failed")]


async def test_a_breaker_opens_after_failures_and_a_lone_backend_is_then_tried_by_one_at_a_time(
    small: Provider, caller_of: CallerOf
) -> None:
    small.default = Fail(500)
    caller = caller_of()
    for _ in range(3):
        with pytest.raises(AllBackendsFailed) as caught:
            await caller.call(chat_request())
        assert caught.value.status == 502
    assert len(small.exchanges) == 5  # the fifth failure opened it, so the third request did not try again
    small.script(Fail(500, delay_s=0.2))
    first = asyncio.create_task(caller.call(chat_request()))
    await until(lambda: len(small.exchanges) == 6)
    with pytest.raises(AllBackendsFailed) as caught:
        await caller.call(chat_request())
    assert caught.value.status == 503
    assert caught.value.retry_after_s is not None
    assert caller.outcomes == []
    with pytest.raises(AllBackendsFailed) as caught:
        await first
    assert caught.value.status == 502
    small.default = Reply()
    await read(await caller.call(chat_request()))
    assert len(small.exchanges) == 7


async def test_a_lone_backend_that_asked_for_a_pause_says_for_itself_whether_it_still_wants_one(
    small: Provider, caller_of: CallerOf
) -> None:
    caller = caller_of()
    small.script(Fail(429, retry_after="20"), Fail(429, retry_after="19"), Reply(), Reply())
    for wait_s in (20, 19):
        with pytest.raises(AllBackendsFailed) as caught:
            await caller.call(chat_request())
        assert (caught.value.status, caught.value.retry_after_s) == (429, wait_s)
    for _ in range(2):
        await read(await caller.call(chat_request()))
    assert len(small.exchanges) == 4


async def test_after_a_rest_one_probe_closes_the_breaker_while_others_fall_back(
    small: Provider, large: Provider, caller_of: CallerOf
) -> None:
    pair = caller_of(
        backend_at(small, "small"),
        backend_at(large, "large"),
        breaker_settings=BreakerSettings(failures_in_a_row=2, rest_s=0.1),
    )
    small.script(Fail(500), Fail(500))
    await read(await pair.call(chat_request()))
    assert not pair.fleet.state(pair.fleet.backends[0]).available
    await until(lambda: pair.fleet.state(pair.fleet.backends[0]).available)
    small.script(Reply(delay_s=0.25))
    probing = asyncio.get_running_loop().create_task(pair.call(chat_request()))
    await until(lambda: len(small.exchanges) == 3)
    await read(await Caller(pair.fleet).call(chat_request()))
    assert len(small.exchanges) == 3
    assert len(large.exchanges) == 2
    await read(await probing)
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "ok")]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_that_does_not_begin_in_time_gives_way(
    small: Provider, large: Provider, caller_of: CallerOf, stream: bool
) -> None:
    pair = caller_of(backend_at(small, "small", first_byte_timeout=0.1), backend_at(large, "large"))
    small.script(Reply(delay_s=10))
    await read(await pair.call(chat_request(stream=stream)))
    assert pair.outcomes == [("small", "interrupted"), ("large", "ok")]
    assert pair.record.attempts[0].error == "backend_timeout"
    await until(lambda: small.last.hung_up)


async def test_a_prompt_that_was_at_work_when_it_broke_off_is_paid_for(small: Provider, pair: Caller) -> None:
    """Of what the backend charges for it, the prompt and what arrived are known; one that says no charges nothing."""
    small.script(Reply(tokens=50, cut="rst"), Fail(500), Reply())
    await read(await pair.call(chat_request()))
    broken, refused = pair.record.attempts[:2]
    assert broken.usage == Usage(broken.input_tokens, output_tokens=48, estimated=True)  # half of the body
    assert (refused.outcome, refused.usage) == ("failed", None)


async def test_a_head_without_a_body_is_no_beginning(small: Provider, large: Provider, caller_of: CallerOf) -> None:
    pair = caller_of(backend_at(small, "small", first_byte_timeout=0.1), backend_at(large, "large"))
    small.script(Reply(prefill_s=10))
    await read(await pair.call(chat_request(stream=True)))
    assert pair.outcomes == [("small", "interrupted"), ("large", "ok")]


async def test_a_plain_answer_may_take_longer_than_a_first_byte_limit_that_nobody_set(
    small: Provider, caller_of: CallerOf
) -> None:
    backend = backend_at(small, "small").model_copy()
    object.__setattr__(backend, "first_byte_timeout", 0.05)  # as if the default were that short
    small.script(Reply(delay_s=0.15))
    caller = caller_of(backend)
    await read(await caller.call(chat_request()))
    assert caller.outcomes == [("small", "ok")]


async def test_the_requests_deadline_ends_everything_and_blames_nobody(small: Provider, pair: Caller) -> None:
    small.default = Reply(delay_s=10)
    for _ in range(6):
        with pytest.raises(DeadlineExceeded) as caught:
            await pair.call(chat_request(), within_s=0.1)
        assert caught.value.status == 504
        assert pair.outcomes == [("small", "interrupted")]
    assert pair.fleet.state(pair.fleet.backends[0]).available
    assert pair.books.still_open == []
    await small.settled()


async def test_no_pause_is_begun_that_would_end_after_the_deadline(small: Provider, pair: Caller) -> None:
    small.script(Fail(429, retry_after="1.5"))
    await read(await pair.call(chat_request(), within_s=1.0))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]


async def test_a_request_past_its_deadline_is_not_sent(small: Provider, pair: Caller) -> None:
    with pytest.raises(DeadlineExceeded):
        await pair.call(chat_request(), within_s=-1.0)
    assert not small.exchanges


async def test_what_does_not_fit_one_window_goes_to_a_wider_one(small: Provider, pair: Caller) -> None:
    pair.windows = {"small": 3}
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("large", "ok")]
    assert not small.exchanges
    assert pair.fleet.stats()["fallbacks"] == 1
    assert pair.record.notes[0]["why"] == "context_length_exceeded"


async def test_what_fits_no_window_is_the_clients_to_change(pair: Caller) -> None:
    pair.windows = {"small": 3, "large": 3}
    with pytest.raises(ContextTooLong, match="does not fit small"):
        await pair.call(chat_request())
    assert pair.books.opened == []


async def test_a_backend_that_says_itself_that_its_window_is_too_small_gives_way(small: Provider, pair: Caller) -> None:
    small.script(Fail(400, "maximum context length is 8 tokens", code="context_length_exceeded"))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]


@pytest.mark.parametrize("fits", [True, False])
async def test_what_a_backend_refuses_as_too_long_is_trimmed_and_sent_again(
    small: Provider, pair: Caller, fits: bool
) -> None:
    """If less context cannot help, the next backend is called at once."""
    request = chat_request()

    async def plan_for(backend: Backend) -> ContextPlan:
        if backend.name in request.too_long_for and fits:
            return ContextPlan(7, 5, frozenset({0}))
        return ContextPlan(7, 7)

    pair.plan_for = plan_for  # type: ignore[method-assign]
    small.script(Fail(400, "maximum context length is 8 tokens", code="context_length_exceeded"))
    await read(await pair.call(request))
    assert pair.outcomes == [("small", "failed"), ("small", "ok") if fits else ("large", "ok")]
    assert [one.trimmed_tokens for one in pair.record.attempts] == [0, 2 if fits else 0]
    assert pair.settled()


async def test_what_the_budget_does_not_allow_is_skipped_before_anything_is_opened(
    small: Provider, pair: Caller
) -> None:
    pair.hold.too_dear = ("small",)
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("large", "ok")]
    pair.hold.too_dear = ("small", "large")
    with pytest.raises(BudgetExhausted):
        await pair.call(chat_request())
    assert not small.exchanges
    assert pair.fleet.state(pair.fleet.backends[0]).in_flight == 0


async def test_a_failure_and_a_dear_fallback_are_a_failure(small: Provider, pair: Caller) -> None:
    small.script(Fail(500), Fail(500))
    pair.hold.too_dear = ("large",)
    with pytest.raises(AllBackendsFailed) as caught:
        await pair.call(chat_request())
    assert caught.value.status == 502


async def test_nothing_is_called_when_the_books_cannot_be_opened(
    small: Provider, large: Provider, pair: Caller
) -> None:
    pair.books.full = True
    with pytest.raises(LedgerUnavailable):
        await pair.call(chat_request())
    assert not small.exchanges
    assert not large.exchanges
    assert pair.books.opened == []
    assert pair.fleet.state(pair.fleet.backends[0]).in_flight == 0


async def test_books_that_fill_up_while_a_backend_fails_stop_the_next_attempt(small: Provider, pair: Caller) -> None:
    small.script(Fail(500, delay_s=0.05))
    calling = asyncio.get_running_loop().create_task(pair.call(chat_request()))
    await until(lambda: small.exchanges)
    pair.books.full = True
    with pytest.raises(LedgerUnavailable):
        await calling
    assert len(small.exchanges) == 1


async def test_a_busy_backend_is_waited_for_a_moment_then_the_next_one_serves(
    small: Provider, large: Provider, caller_of: CallerOf
) -> None:
    pair = caller_of(backend_at(small, "small", concurrent=1), backend_at(large, "large"), wait_s=0.02)
    small.script(Reply(tokens=50, drip_s=0.01))
    first = await pair.call(chat_request(stream=True))
    second = Caller(pair.fleet)
    await read(await second.call(chat_request()))
    assert second.outcomes == [("large", "ok")]
    await read(first)
    await read(await second.call(chat_request()))
    assert second.outcomes == [("small", "ok")]


async def test_when_all_are_busy_the_client_hears_so(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of(backend_at(small, "small", concurrent=1), wait_s=0.02)
    small.script(Reply(tokens=50, drip_s=0.01))
    first = await caller.call(chat_request(stream=True))
    with pytest.raises(Overloaded):
        await Caller(caller.fleet).call(chat_request())
    await first.aclose()


async def test_an_answer_beyond_all_measure_of_http_is_garbage(small: Provider, pair: Caller) -> None:
    small.script(Raw((b"SSH-2.0-OpenSSH_9.6\r\n",)))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]
    assert pair.record.attempts[0].error == "backend_garbage"


async def test_a_redirect_is_the_operators_to_mend(small: Provider, pair: Caller) -> None:
    small.script(Raw((b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",)))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]


async def test_an_empty_route_is_503(caller_of: CallerOf) -> None:
    from gateway.domain.routing.route import Route

    with pytest.raises(AllBackendsFailed) as caught:
        await caller_of().call(chat_request(), Route((), "nothing"))
    assert caught.value.status == 503


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (BackendUnreachable("x"), True),
        (BackendFailed("x"), True),
        (BackendFailed("x", retry_after_s=0.5), True),
        (BackendFailed("x", retry_after_s=30), False),
        (BackendRateLimited("x", retry_after_s=2.0), False),
        (BackendRateLimited("x"), False),
        (BackendTimeout("x"), False),
        (BackendGarbage("x"), False),
    ],
)
def test_which_failures_a_pause_may_cure(failure: BackendError, again: bool) -> None:
    pause_s = pause_after(failure)
    assert (pause_s is not None) is again
    if pause_s is not None:
        assert (failure.retry_after_s or 0.0) < pause_s < (failure.retry_after_s or 0.0) + 0.5


@pytest.mark.parametrize(
    ("said", "code", "kind", "again"),
    [
        (Fail(429, code="rate_limit_exceeded"), "rate_limit_exceeded", "rate_limit_error", True),
        (Fail(429, "You exceeded your current quota", code="insufficient_quota"), *["insufficient_quota"] * 2, False),
        (Fail(429, body="html"), "rate_limit_exceeded", "rate_limit_error", True),
    ],
)
async def test_a_rate_limit_is_told_as_one_and_an_empty_account_as_that(
    small: Provider, caller_of: CallerOf, said: Fail, code: str, kind: str, again: bool
) -> None:
    small.default = said
    with pytest.raises(AllBackendsFailed) as caught:
        await caller_of().call(chat_request())
    error = caught.value
    assert (error.status, error.code, error.kind, error.retryable) == (429, code, kind, again)


async def test_a_403_of_a_key_that_works_opens_no_breaker(small: Provider, pair: Caller) -> None:
    await read(await pair.call(chat_request()))
    small.script(*[Fail(403, "Your account may not do this")] * 8)
    for _ in range(8):
        await read(await pair.call(chat_request()))
        assert pair.outcomes == [("small", "failed"), ("large", "ok")]
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "ok")]


async def test_a_403_of_a_key_that_never_worked_opens_the_breaker(small: Provider, pair: Caller) -> None:
    small.default = Fail(403, "Your account may not do this")
    for _ in range(6):
        await read(await pair.call(chat_request()))
    assert len(small.exchanges) == 5


async def test_an_upper_gateways_deadline_is_no_failure_of_the_backend(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of(backend_at(small, "up", kind="thriftgate"))
    small.script(*[Fail(504, "too late", code="deadline_exceeded")] * 8)
    for _ in range(8):
        with pytest.raises(AllBackendsFailed):
            await caller.call(chat_request())
        assert [attempt.error for attempt in caller.record.attempts] == ["deadline_exceeded"]
        assert caller.books.still_open == []
    await read(await caller.call(chat_request()))
    assert caller.outcomes == [("up", "ok")]


async def test_a_rate_limit_inside_a_200_moves_the_call_to_the_next_backend(small: Provider, pair: Caller) -> None:
    body = b'{"error":{"code":429,"message":"slow down"}}'
    small.script(Raw((b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body),)))
    await read(await pair.call(chat_request()))
    assert pair.outcomes == [("small", "failed"), ("large", "ok")]
    assert pair.record.attempts[0].error == "backend_rate_limited"
    assert pair.fleet.state(pair.fleet.backends[0]).limited
