"""The workers that share a counter, and which of them on this host are dead."""

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
"""States of a process that has ended."""


class Peers:
    """Of one worker: the other workers that held units when a request was short of them."""

    def __init__(self, remember_s: float) -> None:
        self._holders: set[str] = set()
        self._buried: dict[str, float] = {}
        self._remember_s = remember_s
        self.dead = ""
        """Names, apart by spaces, of those that ended lately."""

    def hold(self, names: Iterable[str]) -> None:
        """They hold something that is missed."""
        self._holders.update(names)

    async def look(self) -> None:
        """Do they live?"""
        holders, self._holders = self._holders, set()
        now = time.monotonic()
        if unknown := holders - self._buried.keys():
            self._buried.update(dict.fromkeys(await asyncio.to_thread(dead, unknown), now))
        if self._buried:
            self._buried = {name: at for name, at in self._buried.items() if now - at < self._remember_s}
            self.dead = " ".join(self._buried)


def name_of_mine() -> str:
    """`MACHINE-PID-SINCE-CHANCE@HOST`: unique, and any process of the same machine can tell whether this one still
    lives. Without /proc, MACHINE is empty and nobody can. HOST is for people."""
    name = "-".join((_MACHINE, f"{os.getpid():x}", f"{_since_boot():x}", secrets.token_hex(4)))
    return f"{name}@{re.sub('[^A-Za-z0-9._-]', '-', socket.gethostname())[:40] or 'host'}"


def dead(names: Iterable[str]) -> list[str]:
    """Names of this machine whose process has ended. Reads a small file for each: call it off the loop."""
    return [name for name in names if _is_dead(name)]


def _is_dead(name: str) -> bool:
    machine, _, rest = name.partition("-")
    if not machine or machine != _MACHINE:
        return False
    pid, since, *_ = rest.split("-")
    started = _started(int(pid, 16))
    return started is None or started > int(since, 16)


def _since_boot() -> int:
    """Seconds; the clock that the kernel dates processes by."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME)) if _MACHINE else 0


def _started(pid: int) -> int | None:
    """Seconds since boot; None once the process has ended, waited for or not: its files are closed by then."""
    try:
        facts = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if facts[0] in _GONE else int(facts[19]) // os.sysconf("SC_CLK_TCK")


def _machine() -> str:
    """Of this boot, and of this set of processes: a container has its own."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        return blake2b((boot + os.readlink(_PROC / "self/ns/pid")).encode(), digest_size=4).hexdigest()
    except OSError:
        return ""


_MACHINE = _machine()
"""Read once: it is the same for as long as there are processes to ask about."""
