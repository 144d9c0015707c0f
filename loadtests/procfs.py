"""CPU time and memory of whole process trees, as Linux tells them under /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    """What is wanted of /proc/PID/stat; times in ticks."""

    pid: int
    name: str
    parent: int
    own: int
    """User and system time of the process."""
    waited_for: int
    """The same of its children that have ended."""


def parse_stat(text: str) -> Stat:
    """A program's name may hold spaces and brackets, so the fields are counted from the last bracket."""
    pid, _, rest = text.partition(" (")
    name, _, fields = rest.rpartition(") ")
    values = fields.split()
    user, system, children_user, children_system = map(int, values[11:15])
    return Stat(int(pid), name, int(values[1]), user + system, children_user + children_system)


def stats(proc: Path = PROC) -> dict[int, Stat]:
    """Every process that can be read just now."""
    found = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = parse_stat((entry / "stat").read_text(errors="replace"))
            except OSError:  # it ended meanwhile
                continue
    return found


def tree(root: int, seen: dict[int, Stat] | None = None, without: Iterable[int] = ()) -> list[Stat]:
    """`root` and all below it, but for `without` and what is below those."""
    seen = stats() if seen is None else seen
    children: dict[int, list[Stat]] = {}
    for each in seen.values():
        children.setdefault(each.parent, []).append(each)
    left, found, excluded = [root], [], set(without)
    while left:
        pid = left.pop()
        if pid in seen and pid not in excluded:
            found.append(seen[pid])
            left.extend(child.pid for child in children.get(pid, ()))
    return found


def cpu_s(root: int) -> float:
    """CPU seconds that the tree under `root` has taken, its ended children included."""
    return sum(each.own + each.waited_for for each in tree(root)) / TICKS_PER_S


def settled(root: int, patience_s: float) -> bool:
    """Wait until the tree under `root` takes less than a twentieth of a core; false: it never did."""
    until, before = time.monotonic() + patience_s, cpu_s(root)
    while time.monotonic() < until:
        time.sleep(1.0)
        now = cpu_s(root)
        if now - before < 0.05:
            return True
        before = now
    return False


def threads_s(pid: int) -> dict[int, float]:
    """CPU seconds of each thread of a process; the first one has the process's id."""
    found = {}
    for entry in (PROC / str(pid) / "task").iterdir():
        try:
            found[int(entry.name)] = parse_stat((entry / "stat").read_text(errors="replace")).own / TICKS_PER_S
        except OSError:
            continue
    return found


def parse_pss(text: str) -> int:
    """Bytes of proportional memory in a smaps_rollup."""
    line = next(line for line in text.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def pss(root: int) -> dict[str, int]:
    """`name pid` → bytes, for each process of the tree."""
    found = {}
    for each in tree(root):
        try:
            found[f"{each.name} {each.pid}"] = parse_pss((PROC / str(each.pid) / "smaps_rollup").read_text())
        except (OSError, StopIteration):
            continue
    return found


def load_average() -> float:
    """Of the last minute."""
    return os.getloadavg()[0]
