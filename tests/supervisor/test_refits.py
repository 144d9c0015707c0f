"""The weekly refit: due a week after the last one, in a process of its own, whatever restarts in between."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from gateway.supervisor.refits import AGAIN_S, WEEK_S, Refits


class Clock:
    now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def touches(path: Path, status: int = 0) -> list[str]:
    return [sys.executable, "-c", f"open({str(path)!r}, 'a').write('x'); raise SystemExit({status})"]


async def run(refits: Refits, until: float, stamp: Path) -> None:
    """Run until the stamp names the time `until`."""
    task = asyncio.ensure_future(refits.run())
    async with asyncio.timeout(30):
        while not (stamp.exists() and float(stamp.read_text() or 0) == until):
            await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await refits.aclose()


async def test_it_runs_a_week_after_it_was_switched_on_and_again_a_week_later(tmp_path: Path) -> None:
    clock, stamp, done = Clock(), tmp_path / "refit" / "due", tmp_path / "done"
    refits = Refits(stamp, lambda: touches(done), check_s=0.01, clock=clock)
    await run(refits, 1000 + WEEK_S, stamp)
    assert not done.exists()
    clock.now += WEEK_S
    await run(Refits(stamp, lambda: touches(done), check_s=0.01, clock=clock), clock.now + WEEK_S, stamp)
    assert done.read_text() == "x"


async def test_after_a_failure_it_runs_again_in_a_day(tmp_path: Path) -> None:
    clock, stamp, done = Clock(), tmp_path / "due", tmp_path / "done"
    stamp.write_text("5.0")
    await run(Refits(stamp, lambda: touches(done, 1), check_s=0.01, clock=clock), 1000 + AGAIN_S, stamp)
    assert done.read_text() == "x"


async def test_it_does_nothing_while_it_is_switched_off(tmp_path: Path) -> None:
    refits = Refits(tmp_path / "due", lambda: None, check_s=0.001, clock=Clock())
    task = asyncio.ensure_future(refits.run())
    await asyncio.sleep(0.05)
    task.cancel()
    assert not (tmp_path / "due").exists()
