"""Where a worker's CPU goes: py-spy's samples of it under load, summed by room and by function."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.cells import Cell
from loadtests.client import Run
from loadtests.measure import Generator, load_of
from loadtests.targets import Target

SECONDS = 8
RATE = 250
NUMBERS, MOST = 70_000_000, 200_000
"""Questions from here on, at most so many per cell, so that none repeats another's."""
TOP = 15
_WAITING = ("_worker (", "WorkerThread.run (", "Condition.wait (", "wait (")
"""Threads that wait for work, which py-spy takes for busy on some kernels."""
_LOOP = "Runner.run ("
"""uvloop is compiled: its own work and its waiting look like the function that called it."""


@dataclass(slots=True)
class Profile:
    """Shares of the worker's samples, largest first."""

    cell: str
    samples: int = 0
    rooms: dict[str, float] = field(default_factory=dict)
    """Innermost frame of ours: what a room calls in libraries counts as its."""
    functions: dict[str, float] = field(default_factory=dict)
    """Innermost frame of all."""
    missing: str = ""


def take(cell: Cell, target: Target, generator: Generator, folder: Path, first: int) -> Profile:
    """Sample the first worker of `target` while `cell`'s questions are asked; nothing of it is a figure."""
    profile, program = Profile(cell.name), _program()
    if program is None:
        profile.missing = "py-spy is not installed (extra `loadtest`)"
        return profile
    output = folder / f"profile-{cell.name}.txt"
    command = [
        program, "record", "--pid", str(target.facts()["workers"][0]), "--duration", str(SECONDS), "--rate", str(RATE),
        "--format", "raw", "--full-filenames", "--output", str(output),
    ]  # fmt: skip
    generator.open(load_of(cell.shape, target, max(cell.concurrency, 1)))
    spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        generator.run(Run(first, MOST, seconds=SECONDS + 1))
        _, said = spy.communicate(timeout=60)
    finally:
        spy.kill()
        generator.close()
    if not output.is_file():
        profile.missing = f"py-spy: {said.decode(errors='replace').strip()[-200:]}"
        return profile
    return summarised(profile, output.read_text(errors="replace"))


def _program() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def summarised(profile: Profile, raw: str) -> Profile:
    """`raw`: a line per stack, outermost frame first, frames joined by `;`, then the number of samples."""
    rooms: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if frames[-1].startswith(_WAITING):
            continue
        profile.samples += int(count)
        rooms[_package(frames)] += int(count)
        functions[_named(frames[-1])] += int(count)
    whole = max(profile.samples, 1)
    profile.rooms = {name: seen / whole for name, seen in rooms.most_common(TOP)}
    profile.functions = {name: seen / whole for name, seen in functions.most_common(TOP)}
    return profile


def _package(frames: list[str]) -> str:
    """The package of the innermost frame that is ours, else the innermost library's name."""
    if frames[-1].startswith(_LOOP):
        return "event loop, or waiting"
    for frame in reversed(frames):
        if "/gateway/" in frame and "site-packages" not in frame:
            inside = frame.rpartition("/gateway/")[2].rpartition(":")[0].rstrip(")")
            return "gateway/" + (inside.partition("/")[0] if "/" in inside else inside)
    for frame in reversed(frames):
        if "site-packages/" in frame:
            return frame.partition("site-packages/")[2].partition("/")[0]
    return "python"


def _named(frame: str) -> str:
    """`function (module/file.py:line)` without the way to it and without the line."""
    function, _, place = frame.partition(" (")
    path = place.rstrip(")").rpartition(":")[0]
    for root in ("site-packages/", "/gateway/", "/lib/"):
        if root in path:
            path = (root.strip("/") + "/" if root == "/gateway/" else "") + path.rpartition(root)[2]
            break
    return f"{function} ({path})" if path else function
