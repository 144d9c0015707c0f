"""Detects changed policy files by modification time; works on every file system."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

LOOK_S = 0.2
RESTS = 100
"""A look at very many files costs processor time: so many times as long it rests afterwards."""

SUFFIXES = (".yaml", ".yml")
RESTLESS_LOOKS = 3
"""A file that is written at every look is read as it is after so many of them; it keeps no other's change waiting."""

Dates = Mapping[str, tuple[int, ...]]


def dates(folders: Sequence[Path]) -> Dates:
    """When each policy file was written or its mode changed, its size and number; links are followed, as a mounted
    ConfigMap has them."""
    found: dict[str, tuple[int, ...]] = {}
    for folder in folders:
        try:
            with os.scandir(folder) as files:
                for file in files:
                    if file.name.endswith(SUFFIXES):
                        found[file.path] = _facts(file)
        except OSError:  # it is just being replaced: another look will tell
            continue
    return found


def _facts(file: os.DirEntry[str]) -> tuple[int, ...]:
    try:
        facts = file.stat()
    except OSError:  # gone by now, or a link to nothing
        return ()
    return facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino


async def changes(folders: Sequence[Path], known: Dates, look_s: float = LOOK_S) -> AsyncIterator[None]:
    """An item each time files are no longer as `known` and are left alone again, or are never left alone. For ever."""
    last, restless = known, 0
    while True:
        now, cost_s = await asyncio.to_thread(_look, folders)
        restless = restless + 1 if now != known else 0
        if now != known and (now == last or restless >= RESTLESS_LOOKS):
            known, restless = now, 0
            yield
        last = now
        await asyncio.sleep(max(look_s, RESTS * cost_s))


def _look(folders: Sequence[Path]) -> tuple[Dates, float]:
    """With its own processor seconds: waiting for a turn on a busy machine is no reason to look less often."""
    began = time.thread_time()
    return dates(folders), time.thread_time() - began
