"""Many deadlines, few timers: each cuts its own block short and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from gateway.runtime.deadlines import Deadlines


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_block_that_takes_too_long_is_cut_short() -> None:
    deadlines = Deadlines()
    with pytest.raises(TimeoutError), deadlines.at(now() + 0.01):
        await asyncio.sleep(5)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert len(deadlines) == 0


async def test_never_before_its_time() -> None:
    deadlines = Deadlines()
    when = now() + 0.07
    with pytest.raises(TimeoutError), deadlines.at(when):
        await asyncio.sleep(5)
    assert now() >= when


async def test_a_time_that_is_past_already_ends_it_too() -> None:
    with pytest.raises(TimeoutError), Deadlines().at(now() - 1):
        await asyncio.sleep(5)


async def test_a_block_that_is_quick_is_left_alone() -> None:
    deadlines = Deadlines()
    with deadlines.at(now() + 0.06):
        await asyncio.sleep(0)
    assert len(deadlines) == 0
    await asyncio.sleep(0.15)


async def test_an_error_of_the_block_is_its_own() -> None:
    with pytest.raises(ValueError, match="mine"), Deadlines().at(now() + 5):
        raise ValueError("mine")


async def test_being_cancelled_by_somebody_else_is_no_timeout() -> None:
    deadlines = Deadlines()

    async def work() -> None:
        with deadlines.at(now() + 60):
            await asyncio.sleep(5)

    task = asyncio.get_running_loop().create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_both_at_once_is_a_cancellation() -> None:
    deadlines = Deadlines()

    async def work() -> None:
        with deadlines.at(now() + 0.01):
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # somebody else, just then
                raise

    task = asyncio.get_running_loop().create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_inner_and_outer_deadlines_are_told_apart() -> None:
    deadlines = Deadlines()
    with pytest.raises(TimeoutError), deadlines.at(now() + 0.01), deadlines.at(now() + 60):
        await asyncio.sleep(5)
    with deadlines.at(now() + 60), pytest.raises(TimeoutError), deadlines.at(now() + 0.01):
        await asyncio.sleep(5)


async def test_thousands_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    when, over, timers = loop.time() + 600, asyncio.Event(), []

    async def work(place: int) -> None:
        with deadlines.at(when + place / 10_000):
            await over.wait()

    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_at", lambda due, *_: timers.append(due))
        running = [loop.create_task(work(place)) for place in range(2000)]
        await asyncio.sleep(0)
    assert len(deadlines) == 2000
    assert len(timers) == 1
    over.set()
    await asyncio.gather(*running)
    assert len(deadlines) == 0


async def test_a_deadline_that_comes_first_does_not_delay_or_end_a_later_one() -> None:
    deadlines, ended = Deadlines(), list[float]()
    began = now()

    async def work(after_s: float) -> None:
        with pytest.raises(TimeoutError), deadlines.at(began + after_s):
            await asyncio.sleep(5)
        ended.append(after_s)
        assert after_s <= now() - began < after_s + 1

    await asyncio.gather(*(work(after_s) for after_s in (0.6, 0.1, 0.3)))
    assert ended == [0.1, 0.3, 0.6]
    assert len(deadlines) == 0


async def test_a_later_deadline_ends_although_the_first_was_kept() -> None:
    deadlines = Deadlines()
    with deadlines.at(now() + 0.05):
        pass
    with pytest.raises(TimeoutError), deadlines.at(now() + 0.2):
        await asyncio.sleep(5)
