from __future__ import annotations

import asyncio

import pytest

from gateway.backends.resilience.breaker import BreakerSettings, Health, Slot
from gateway.errors import BackendRateLimited, BackendUnreachable, Overloaded
from tests.fakes.clock import StoppedClock


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock(1000.0)


def health(clock: StoppedClock, *, concurrent: int = 100, wait_s: float = 0.02, **breaker_settings: float) -> Health:
    rules = BreakerSettings(**breaker_settings)  # type: ignore[arg-type]
    return Health("small", concurrent, monotonic=clock.monotonic, breaker_settings=rules, queue_timeout_s=wait_s)


async def entered(subject: Health) -> Slot:
    place = await subject.enter(1.0)
    assert place is not None
    return place


async def fail(subject: Health, times: int) -> None:
    for _ in range(times):
        (await entered(subject)).failed()


async def succeed(subject: Health, times: int) -> None:
    for _ in range(times):
        place = await entered(subject)
        place.began()
        place.succeeded()


async def test_failures_in_a_row_open_the_breaker(clock: StoppedClock) -> None:
    subject = health(clock)
    await fail(subject, 4)
    assert subject.state().available
    await fail(subject, 1)
    assert not subject.state().available
    assert subject.state().reason == "unavailable after failures"
    assert await subject.enter(1.0) is None


def refused() -> BackendUnreachable:
    error = BackendUnreachable("small cannot be reached: the connection was refused", backend="small")
    error.refused = True
    return error


async def test_only_connections_refused_for_a_long_time_need_the_operator(clock: StoppedClock) -> None:
    subject = health(clock, rest_s=5.0)
    for _ in range(5):
        (await entered(subject)).failed(refused())
    assert not subject.needs_operator, "a server that restarts refuses connections too"
    for needs_operator in (False, True):
        clock.now += 6.0 if not needs_operator else 11.0
        (await entered(subject)).failed(error := refused())
        assert (subject.needs_operator, error.retryable) == (needs_operator, not needs_operator)
    clock.now += 60.0
    await succeed(subject, 1)
    for _ in range(5):
        clock.now += 1.0
        place = await subject.enter(1.0)
        if place:
            place.failed(refused())
    assert not subject.needs_operator, "it answered in between"


async def test_a_success_between_failures_starts_the_row_anew(clock: StoppedClock) -> None:
    subject = health(clock)
    for _ in range(5):
        await fail(subject, 4)
        await succeed(subject, 9)
    assert subject.state().available


async def test_a_high_share_of_errors_opens_the_breaker_without_a_row(clock: StoppedClock) -> None:
    subject = health(clock)
    for _ in range(9):
        await fail(subject, 1)
        await succeed(subject, 1)
    assert subject.state().available  # 18 calls say too little
    await succeed(subject, 1)
    await fail(subject, 1)
    assert not subject.state().available


async def test_old_errors_fade(clock: StoppedClock) -> None:
    subject = health(clock)
    for _ in range(9):
        await fail(subject, 1)
        await succeed(subject, 1)
    clock.pass_(61)
    await fail(subject, 4)
    assert subject.state().available


async def test_after_the_rest_one_probe_goes_through_and_closes_the_breaker(clock: StoppedClock) -> None:
    subject = health(clock)
    await fail(subject, 5)
    clock.pass_(4.9)
    assert await subject.enter(1.0) is None
    clock.pass_(0.2)
    assert subject.state().available
    probe = await entered(subject)
    assert subject.state().reason == "being probed"
    assert await subject.enter(1.0) is None
    probe.began()
    assert subject.state().available
    probe.succeeded()
    await succeed(subject, 3)


async def test_a_failed_probe_doubles_the_rest_up_to_a_limit(clock: StoppedClock) -> None:
    subject = health(clock, longest_rest_s=15.0)
    await fail(subject, 5)
    for rest_s in (5.0, 10.0, 15.0, 15.0):
        clock.pass_(rest_s - 0.1)
        assert await subject.enter(1.0) is None
        clock.pass_(0.2)
        await fail(subject, 1)


async def test_a_probe_that_breaks_after_its_first_bytes_opens_the_breaker_again(clock: StoppedClock) -> None:
    subject = health(clock)
    await fail(subject, 5)
    clock.pass_(5.1)
    probe = await entered(subject)
    probe.began()
    probe.failed()
    assert not subject.state().available


async def test_a_probe_whose_client_hangs_up_leaves_the_probe_to_the_next_call(clock: StoppedClock) -> None:
    subject = health(clock)
    await fail(subject, 5)
    clock.pass_(5.1)
    (await entered(subject)).left()
    assert subject.state().available
    await succeed(subject, 1)


async def test_a_late_failure_of_a_call_from_before_does_not_prolong_the_rest(clock: StoppedClock) -> None:
    subject = health(clock)
    early = [await entered(subject) for _ in range(10)]
    await fail(subject, 5)
    clock.pass_(4.0)
    for place in early:
        place.failed()
    clock.pass_(1.1)
    assert subject.state().available
    assert subject.in_flight == 0


async def test_a_late_success_of_a_call_from_before_does_not_shorten_the_next_rest(clock: StoppedClock) -> None:
    subject = health(clock)
    early = await entered(subject)
    await fail(subject, 5)
    early.began()
    early.succeeded()
    assert not subject.state().available
    clock.pass_(5.1)
    await fail(subject, 1)
    clock.pass_(9.9)
    assert not subject.state().available


async def test_a_long_retry_after_is_honoured_but_not_for_ever(clock: StoppedClock) -> None:
    subject = health(clock)
    (await entered(subject)).limited(3600.0)
    with pytest.raises(BackendRateLimited) as caught:
        await subject.enter(1.0)
    assert caught.value.retry_after_s == pytest.approx(60.0)
    assert subject.state().reason == "rate-limited"
    clock.pass_(60.1)
    await succeed(subject, 1)


async def test_a_short_retry_after_is_a_pause_for_all_requests(clock: StoppedClock) -> None:
    subject = health(clock)
    (await entered(subject)).limited(1.0)
    assert subject.state().limited
    assert subject.pause_s == pytest.approx(1.0)
    clock.pass_(1.1)
    assert not subject.state().limited
    await succeed(subject, 1)


async def test_a_429_without_retry_after_alone_is_no_pause(clock: StoppedClock) -> None:
    subject = health(clock)
    (await entered(subject)).limited(None)
    assert subject.state().available


async def test_a_guessed_pause_doubles_up_to_two_seconds_until_a_later_call_succeeds(clock: StoppedClock) -> None:
    subject = health(clock)
    early = await entered(subject)
    for pause_s in (0.5, 1.0, 2.0, 2.0):
        (await entered(subject)).limited(None)
        subject.guess_pause()
        subject.guess_pause()  # a second refusal of the same moment
        assert subject.pause_s == pytest.approx(pause_s)
        clock.pass_(pause_s + 0.01)
    early.succeeded()  # its call began before the refusals
    subject.guess_pause()
    assert subject.pause_s == pytest.approx(2.0)
    clock.pass_(2.1)
    await succeed(subject, 1)
    subject.guess_pause()
    assert subject.pause_s == pytest.approx(0.5)


async def test_calls_above_the_limit_wait_for_a_place_and_get_it(clock: StoppedClock) -> None:
    subject = health(clock, concurrent=1, wait_s=1.0)
    first = await entered(subject)
    waiting = asyncio.get_running_loop().create_task(subject.enter(1.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.left()
    second = await waiting
    assert second is not None
    assert subject.in_flight == 1


async def test_a_place_is_had_at_once_while_there_is_nothing_to_wait_for(clock: StoppedClock) -> None:
    subject = health(clock, concurrent=1, failures_in_a_row=1)
    first = subject.try_enter("")
    assert first is not None
    assert (subject.in_flight, subject.try_enter("")) == (1, None)
    first.failed()
    assert (subject.in_flight, subject.try_enter("")) == (0, None)  # it rests
    clock.pass_(6)
    assert subject.try_enter("") is None  # a probe is not had in passing
    (await entered(subject)).succeeded()  # a plain answer is whole when it begins
    assert not subject.breaker.open


async def test_the_wait_for_a_place_is_bounded(clock: StoppedClock) -> None:
    subject = health(clock, concurrent=1)
    first = await entered(subject)
    with pytest.raises(Overloaded, match="small already has 1 calls"):
        await subject.enter(1.0)
    first.left()
    await succeed(subject, 2)


async def test_a_breaker_that_opens_while_a_call_waits_turns_it_away_and_keeps_the_place(clock: StoppedClock) -> None:
    subject = health(clock, concurrent=5, wait_s=1.0)
    places = [await entered(subject) for _ in range(5)]
    waiting = asyncio.get_running_loop().create_task(subject.enter(1.0))
    await asyncio.sleep(0)
    for place in places:
        place.failed()
    assert await waiting is None
    clock.pass_(5.1)
    await succeed(subject, 6)
    assert subject.in_flight == 0


async def test_a_wait_that_is_cancelled_takes_no_place(clock: StoppedClock) -> None:
    subject = health(clock, concurrent=1, wait_s=1.0)
    first = await entered(subject)
    waiting = asyncio.get_running_loop().create_task(subject.enter(1.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    first.left()
    await succeed(subject, 2)
    assert subject.in_flight == 0


async def test_only_the_first_verdict_counts(clock: StoppedClock) -> None:
    subject = health(clock)
    for _ in range(10):
        place = await entered(subject)
        place.left()
        place.failed()
        place.succeeded()
    assert subject.state().available
    assert subject.in_flight == 0


async def test_the_time_to_a_first_byte_is_averaged_over_streams_alone(clock: StoppedClock) -> None:
    subject = health(clock)
    assert subject.state().first_byte_ms is None
    for pause_s, streaming in ((0.1, True), (30.0, False), (0.2, True)):
        place = await entered(subject)
        clock.pass_(pause_s)
        if streaming:
            place.began()
        place.succeeded()
    assert subject.state().first_byte_ms == pytest.approx(120.0)


async def test_the_age_of_the_last_measurement_is_known(clock: StoppedClock) -> None:
    subject = health(clock)
    place = await entered(subject)
    clock.now += 2
    place.began()
    clock.now += 30
    assert (subject.state().first_byte_ms, subject.state().measured_s) == (2000.0, 30.0)


async def test_nearly_all_first_tokens_are_known_once_there_are_enough(clock: StoppedClock) -> None:
    subject = health(clock)
    for number in range(1, 101):
        assert (subject.slow_after_s is None) == (number <= 20)
        place = await entered(subject)
        clock.pass_(number / 100)
        place.began()
        place.succeeded()
    assert subject.slow_after_s == pytest.approx(0.95)


async def test_a_call_that_was_outrun_counts_with_the_time_that_it_took_in_vain(clock: StoppedClock) -> None:
    subject = health(clock)
    for pause_s, lost_race in ((0.1, False),) * 18 + ((2.0, True),) * 2:
        place = await entered(subject)
        clock.pass_(pause_s)
        if lost_race:
            place.lost_race()
            place.lost_race()
        else:
            place.began()
            place.succeeded()
    assert subject.slow_after_s == pytest.approx(2.0)
    assert subject.in_flight == 0
    assert subject.state().available


async def test_the_time_to_a_whole_answer_is_averaged_over_answers_alone(clock: StoppedClock) -> None:
    subject = health(clock)
    for pause_s, answered in ((1.0, True), (60.0, False), (2.0, True)):
        place = await entered(subject)
        clock.pass_(pause_s)
        place.succeeded(answered=answered)
    assert subject.whole_s == pytest.approx(1.2)
