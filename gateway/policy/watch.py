"""Notices that policy files changed, by their dates: works on every file system, for a listing of the folder a look."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

LOOK_S = 0.2
RESTS = 100
"""A look at very many files costs processor time: so many times as long it rests afterwards."""

Dates = Mapping[str, tuple[int, int, int]]


def dates(folders: Sequence[Path]) -> Dates:
    """When each policy file was written, its size and number; links are followed, as a mounted ConfigMap has them."""
    found: dict[str, tuple[int, int, int]] = {}
    for folder in folders:
        try:
            with os.scandir(folder) as files:
                for file in files:
                    if file.name.endswith((".yaml", ".yml")):
                        facts = file.stat()
                        found[file.path] = facts.st_mtime_ns, facts.st_size, facts.st_ino
        except OSError:  # it, or one of them, is just being replaced: another look will tell
            continue
    return found


async def changes(folders: Sequence[Path], known: Dates, look_s: float = LOOK_S) -> AsyncIterator[None]:
    """An item each time files are no longer as `known` and are left alone again. For ever."""
    last = known
    while True:
        now, cost_s = await asyncio.to_thread(_look, folders)
        if now != known and now == last:
            known = now
            yield
        last = now
        await asyncio.sleep(max(look_s, RESTS * cost_s))


def _look(folders: Sequence[Path]) -> tuple[Dates, float]:
    """With its own processor seconds: waiting for a turn on a busy machine is no reason to look less often."""
    began = time.thread_time()
    return dates(folders), time.thread_time() - began
