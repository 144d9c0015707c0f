"""Leaving connections: who is told, who is closed, and when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from gateway.api.server import shutdown as leaving
from gateway.api.server.shutdown import leave
from tests.support.waiting import until


@dataclass
class Cycle:
    response_started: bool = False
    response_complete: bool = False


@dataclass(eq=False)
class Connection:
    """As uvicorn's: an idle one that is shut down is gone; a busy one is told."""

    everyone: set[Connection]
    cycle: Cycle | None = None
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.everyone.add(self)

    def shutdown(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.everyone.discard(self)
        else:
            self.told.append("last")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "LOOK_S", 0.01)
    monkeypatch.setattr(leaving, "LINGER_S", 0.1)


async def test_an_idle_connection_is_closed_after_a_while_a_new_one_too() -> None:
    everyone: set[Connection] = set()
    Connection(everyone), Connection(everyone, Cycle(True, True))
    await leave(everyone, 10)
    assert not everyone


async def test_an_answer_that_has_not_begun_will_say_that_it_is_the_last() -> None:
    everyone: set[Connection] = set()
    waiting, streaming = Connection(everyone, Cycle()), Connection(everyone, Cycle(response_started=True))
    task = asyncio.ensure_future(leave(everyone, 10))
    await until(lambda: waiting.told)
    assert not streaming.told
    everyone.discard(waiting)
    streaming.cycle = Cycle(True, True)  # its stream has ended: it may be asked once more
    await task
    assert not everyone


async def test_what_does_not_end_is_left_when_the_time_is_over() -> None:
    everyone: set[Connection] = set()
    endless = Connection(everyone, Cycle(response_started=True))
    await leave(everyone, 0.05)
    assert everyone == {endless}
