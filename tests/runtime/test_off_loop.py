"""Work on large bodies leaves the event loop free, a piece at a time."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest

from gateway.runtime.off_loop import OffLoop


async def test_the_loop_runs_while_work_is_under_way_and_the_next_piece_waits() -> None:
    off_loop, go, order = OffLoop(), threading.Event(), list[str]()

    def first() -> None:
        go.wait(10)
        order.append("first")

    both = asyncio.gather(off_loop.run(first), off_loop.run(order.append, "second"))
    await asyncio.sleep(0)
    assert order == []
    go.set()
    await both
    assert order == ["first", "second"]
    off_loop.close()


async def test_what_the_work_raises_is_raised() -> None:
    off_loop = OffLoop()
    with pytest.raises(ValueError, match="invalid literal"):
        await off_loop.run(int, "x")
    off_loop.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no priority for each thread")
async def test_the_priority_of_the_threads_alone_is_lower() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    off_loop, before = OffLoop(nice=3), priority()
    assert [await off_loop.run(priority) for _ in range(2)] == [before + 3] * 2
    assert priority() == before
    off_loop.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no priority for each thread")
async def test_the_threads_work_also_where_their_priority_must_not_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(which: int, who: int, priority: int) -> None:
        raise PermissionError(1, "Operation not permitted")  # as in a sandbox that filters system calls

    monkeypatch.setattr(os, "setpriority", forbidden)
    off_loop = OffLoop(nice=3)
    assert await off_loop.run(int, "7") == 7
    off_loop.close()
