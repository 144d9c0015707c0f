"""The tour waits for Enter only where somebody can press it."""

from __future__ import annotations

import asyncio
import io
import os
import pty
from collections.abc import Iterator

import pytest
from rich.console import Console

from gateway.cli.develop.pauses import Pauses


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input is a terminal; what is written to the descriptor is typed there."""
    typed, read = pty.openpty()
    kept = os.dup(0)
    os.dup2(read, 0)
    stdin = os.fdopen(os.dup(0))
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.delenv("TOUR", raising=False)
    yield typed
    stdin.close()
    os.dup2(kept, 0)
    for fd in (kept, typed, read):
        os.close(fd)


def console(*, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal)


async def test_it_waits_for_enter(keyboard: int) -> None:
    waiting = asyncio.ensure_future(Pauses(console()).wait())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    os.write(keyboard, b"\n")
    await asyncio.wait_for(waiting, 10)


async def test_it_does_not_wait_where_it_is_fast_or_nobody_reads(
    keyboard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.wait_for(Pauses(console(terminal=False)).wait(), 10)
    monkeypatch.setenv("TOUR", "fast")
    await asyncio.wait_for(Pauses(console()).wait(), 10)
