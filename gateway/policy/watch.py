"""Detects changed policy files by their modification times. This works on every file system."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

LOOK_S = 0.2
RESTS = 100
"""After a check, the watcher sleeps at least for this multiple of the check's processor time."""

SUFFIXES = (".yaml", ".yml")
RESTLESS_LOOKS = 3
"""A file that changes at each check is read after this number of checks. Changes of other files do not wait for it."""

Dates = Mapping[str, tuple[int, ...]]


def dates(folders: Sequence[Path]) -> Dates:
    """The modification times, size and inode of each policy file. Symbolic links are followed, because a mounted
    ConfigMap uses them."""
    found: dict[str, tuple[int, ...]] = {}
    for folder in folders:
        try:
            with os.scandir(folder) as files:
                for file in files:
                    if file.name.endswith(SUFFIXES):
                        found[file.path] = _facts(file)
        except OSError:  # the file is being replaced; the next check sees it
            continue
    return found


def _facts(file: os.DirEntry[str]) -> tuple[int, ...]:
    try:
        facts = file.stat()
    except OSError:  # deleted meanwhile, or a broken link
        return ()
    return facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino


async def changes(folders: Sequence[Path], known: Dates, look_s: float = LOOK_S) -> AsyncIterator[None]:
    """Yield whenever the files have changed since `known` or since the last yield. After a change, wait until two
    checks in a row find the same files, but not longer than `RESTLESS_LOOKS` checks. Never ends.
    """
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
    """Check the folders once. Returns the result of `dates`, and the processor seconds that the check took."""
    began = time.thread_time()  # not elapsed time: otherwise a busy machine would check more rarely
    return dates(folders), time.thread_time() - began
