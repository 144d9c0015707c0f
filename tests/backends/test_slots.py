from __future__ import annotations

import asyncio

import pytest

from gateway.backends.resilience.slots import ConcurrencyLimiter
from gateway.errors import Overloaded, ShareExceeded
from tests.fakes.clock import StoppedClock


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock(1000.0)


def places(clock: StoppedClock, *, concurrent: int = 1, queue: int = 100, wait_s: float = 5.0) -> ConcurrencyLimiter:
    return ConcurrencyLimiter("small", concurrent, queue, wait_s, clock.monotonic)


class Callers:
    """Who wait, and in which order they got their places."""

    def __init__(self, subject: ConcurrencyLimiter) -> None:
        self.subject = subject
        self.served: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, line: str) -> None:
        """Capitals are batch."""
        for name in line.split():
            self.tasks.append(asyncio.get_running_loop().create_task(self._wait(name)))
        await asyncio.sleep(0)

    async def _wait(self, name: str) -> None:
        await self.subject.wait(name.lower(), name.isupper(), 5.0)
        self.served.append(name)

    async def serve_all(self, first: str) -> list[str]:
        """`first` gives its place back, and so does everybody who gets it, at once."""
        self.subject.release(first)
        seen = 0
        while seen < len(self.served) or not all(task.done() for task in self.tasks):
            for name in self.served[seen:]:
                seen += 1
                self.subject.release(name.lower())
            await asyncio.sleep(0)
        return self.served


async def test_places_that_come_free_go_round_among_teams_interactive_first(clock: StoppedClock) -> None:
    subject = places(clock)
    assert subject.take("z")
    assert not subject.take("z")
    callers = Callers(subject)
    await callers.come("B a a a b c")
    served = await callers.serve_all("z")
    assert served == ["a", "b", "c", "a", "a", "B"]
    assert subject.take("z"), "the place was lost"


async def test_a_team_with_many_places_waits_for_one_with_none(clock: StoppedClock) -> None:
    subject = places(clock, concurrent=3)
    assert all(subject.take("flood") for _ in range(3))
    callers = Callers(subject)
    await callers.come("flood flood polite polite")
    subject.release("flood")
    subject.release("flood")
    await asyncio.sleep(0)
    assert callers.served == ["polite", "flood"]  # after one each there are as many
    subject.release("flood")
    await asyncio.sleep(0)
    assert callers.served == ["polite", "flood", "polite"]
    subject.release("polite")
    await asyncio.gather(*callers.tasks)


@pytest.mark.parametrize("when", ["waiting", "granted"])
async def test_a_waiter_that_is_cancelled_leaves_no_trace(clock: StoppedClock, when: str) -> None:
    subject = places(clock)
    subject.take("a")
    callers = Callers(subject)
    await callers.come("b")
    if when == "granted":
        subject.release("a")
    callers.tasks[0].cancel()
    await asyncio.gather(*callers.tasks, return_exceptions=True)
    if when == "waiting":
        assert subject.stats()["waiting"] == 0
        subject.release("a")
    assert subject.take("c"), "the place was lost"
    assert not subject.take("c")


async def test_a_place_refused_by_one_that_is_leaving_goes_to_the_next(clock: StoppedClock) -> None:
    subject = places(clock)
    subject.take("a")
    callers = Callers(subject)
    await callers.come("b c")
    callers.tasks[0].cancel()
    subject.release("a")
    await asyncio.gather(*callers.tasks, return_exceptions=True)
    assert callers.served == ["c"]


async def test_the_wait_is_bounded(clock: StoppedClock) -> None:
    subject = places(clock, wait_s=0.01)
    subject.take("a")
    with pytest.raises(Overloaded, match="small already has 1 calls") as caught:
        await subject.wait("b", False, 5.0)
    assert caught.value.retry_after_s
    assert subject.stats() == {
        "waiting": 0, "queued": 1, "timed_out": 1, "refused": 0, "refused_batch": 0, "refused_share": 0,
    }  # fmt: skip
    subject.release("a")
    assert subject.take("b")


@pytest.mark.parametrize(
    ("line", "refused", "counted"),
    [
        ("a a a", Overloaded, {"refused": 1}),  # alone: it is the backend that is too small
        ("a b c", Overloaded, {"refused": 1}),
        ("a a b", ShareExceeded, {"refused_share": 1}),  # the newest of the longest line goes
        ("a b a", ShareExceeded, {"refused_share": 1}),  # and that would be the newcomer itself
        ("A A a", Overloaded, {"refused_batch": 1}),
        ("A A b b", Overloaded, {"refused_batch": 2}),
        ("a a A", Overloaded, {"refused_batch": 1}),
    ],
)
async def test_a_full_queue_refuses_at_once(
    clock: StoppedClock, line: str, refused: type[Overloaded], counted: dict[str, int]
) -> None:
    subject = places(clock, queue=2)
    subject.take("z")
    callers = Callers(subject)
    await callers.come(line)
    stats = subject.stats()
    assert stats["waiting"] == 2
    assert {name: value for name, value in stats.items() if value and name.startswith("refused")} == counted
    assert len(await callers.serve_all("z")) == 2
    found = await asyncio.gather(*callers.tasks, return_exceptions=True)
    assert {type(error) for error in found if error is not None} == {refused}


async def test_what_is_told_to_wait_follows_how_fast_places_come_free(clock: StoppedClock) -> None:
    subject = places(clock, queue=9)
    subject.take("a")
    callers = Callers(subject)
    await callers.come("a " * 9)
    for _ in range(5):
        clock.pass_(2.0)
        subject.release("a")
        await asyncio.sleep(0)
        await callers.come("a")
    with pytest.raises(Overloaded) as caught:
        await subject.wait("a", False, 5.0)
    assert caught.value.retry_after_s is not None
    assert 10 * 2.0 * 0.8 <= caught.value.retry_after_s <= 10 * 2.0 * 1.4
    for task in callers.tasks:
        task.cancel()
    await asyncio.gather(*callers.tasks, return_exceptions=True)
