"""Names of workers that share counters. From such a name, any process of the same machine can find out whether the
worker has ended.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

_PROC = Path("/proc")
_GONE = "ZX"
"""State codes in /proc of a process that has ended."""


class DeadHolders:
    """Finds workers of this machine that have ended while they held units that this worker needs."""

    def __init__(self, remember_s: float) -> None:
        self._unchecked: set[str] = set()
        self._dead: dict[str, float] = {}
        self._remember_s = remember_s
        self.dead = ""
        """Names of the workers that were found dead in the last `remember_s` seconds, separated by spaces."""

    def add(self, names: Iterable[str]) -> None:
        """Add workers that hold units which this worker needs. The next call of `check` tests whether they have
        ended."""
        self._unchecked.update(names)

    async def check(self) -> None:
        """Test whether the workers that were added since the last check have ended."""
        holders, self._unchecked = self._unchecked, set()
        now = time.monotonic()
        if unknown := holders - self._dead.keys():
            self._dead.update(dict.fromkeys(await asyncio.to_thread(dead, unknown), now))
        if self._dead:
            self._dead = {name: at for name, at in self._dead.items() if now - at < self._remember_s}
            self.dead = " ".join(self._dead)


def own_name() -> str:
    """A unique name for this process, `MACHINE-PID-SINCE-RANDOM@HOST`. With it, processes of the same machine can
    find out whether this process still runs.

    MACHINE is empty on systems without /proc, where this is impossible. HOST is for display.
    """
    name = "-".join((_MACHINE, f"{os.getpid():x}", f"{_since_boot():x}", secrets.token_hex(4)))
    return f"{name}@{re.sub('[^A-Za-z0-9._-]', '-', socket.gethostname())[:40] or 'host'}"


def dead(names: Iterable[str]) -> list[str]:
    """The workers among `names` that ran on this machine and have ended. Reads a small file for each name, so call it
    in a thread."""
    return [name for name in names if _is_dead(name)]


def _is_dead(name: str) -> bool:
    machine, _, rest = name.partition("-")
    if not machine or machine != _MACHINE:
        return False
    pid, since, *_ = rest.split("-")
    started = _started(int(pid, 16))
    return started is None or started > int(since, 16)


def _since_boot() -> int:
    """Seconds since boot, by the clock that /proc uses for the start times of processes."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME)) if _MACHINE else 0


def _started(pid: int) -> int | None:
    """Seconds from boot to the start of process `pid`; None if it has ended. A zombie counts as ended."""
    try:
        facts = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if facts[0] in _GONE else int(facts[19]) // os.sysconf("SC_CLK_TCK")


def _machine() -> str:
    """A hash of the machine's current boot and of the PID namespace. Each container has a PID namespace of its own."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        return blake2b((boot + os.readlink(_PROC / "self/ns/pid")).encode(), digest_size=4).hexdigest()
    except OSError:
        return ""


_MACHINE = _machine()
"""The result of `_machine` for this process. It cannot change while the process runs."""
