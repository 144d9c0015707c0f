"""The journal's files. Each file is a numbered segment of lines with checksums. All segments of one worker process
together are called a lane.

A line has eight hex digits of CRC-32, a space, a JSON object and a newline. If a crash or a full disk leaves a line
incomplete, the checksum does not match and the line is skipped. The first line of a segment names the fields of the
segment's rows, so that later versions can read these rows.

A worker locks a segment before it gives the segment its name, and creates the next segment before it unlocks the
present one. So a worker is dead if another process can lock the last segment of the worker's lane.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson

SUFFIX = ".journal"
READ_BYTES = 2**20
_LEASES = "~"
"""Separator in the name of a lane (one worker process's journal). Before the separator stands the worker's name, and
after it the name under which the worker leases budgets."""
_MOST_PLAIN = 40


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a worker's journal. All files of one worker process together are called a lane."""

    lane: str
    number: int
    path: Path

    @classmethod
    def at(cls, directory: Path, lane: str, number: int) -> Segment:
        return cls(lane, number, directory / f"{lane}.{number:06d}{SUFFIX}")


def new_lane(worker: str, leases_as: str = "") -> str:
    """Make a new unique name for the journal of one worker process, such as `worker-0-68f1a2b3c4d5e6f7`. `leases_as`:
    the unique name under which the worker leases budget."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in worker)[:_MOST_PLAIN] or "worker"
    if leases_as:
        return f"{plain}{_LEASES}{leases_as}"
    return f"{plain}-{int(time.time()):08x}{os.urandom(8).hex()}"


def leases_as(lane: str) -> str:
    """The name under which the worker that writes the journal `lane` leases budgets; empty if this worker leases no
    budget."""
    return lane.partition(_LEASES)[2]


def lanes(directory: Path) -> dict[str, list[Segment]]:
    """Find all journals in the folder. Returns name of the lane (one worker process's journal) → its segment files,
    oldest first."""
    found: dict[str, list[Segment]] = {}
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        lane, _, number = path.name.removesuffix(SUFFIX).rpartition(".")
        if lane and number.isdigit():
            found.setdefault(lane, []).append(Segment(lane, int(number), path))
    return found


def encode(entry: dict[str, Any]) -> bytes:
    """Encode an object as one line of the journal. Invalid UTF-8 in a text is replaced, so that the row with its cost
    can still be written.

    Raises TypeError for integers beyond 64 bits.
    """
    try:
        payload = orjson.dumps(entry)
    except TypeError:
        payload = orjson.dumps({name: _readable(value) for name, value in entry.items()})
    return b"%08x %b\n" % (crc32(payload), payload)


def _readable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case tuple() | list():
            return [_readable(each) for each in value]
    return value


def checked(line: bytes) -> bytes | None:
    """The JSON text of a line, without the newline; None if the line's checksum does not match."""
    payload = line[9:]
    return payload if line[:8] == b"%08x" % crc32(payload) else None


def create(segment: Segment, fields: Sequence[str]) -> int:
    """Create a segment for rows with the given `fields`. Returns its file descriptor, which is locked and open for
    appending. Raises OSError."""
    hidden = segment.path.with_suffix(".new")
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        line = encode({"head": segment.lane, "pid": os.getpid(), "at": time.time(), "fields": fields})
        if os.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        hidden.rename(segment.path)
        _sync_directory(segment.path.parent)
    except OSError:
        os.close(fd)
        hidden.unlink(missing_ok=True)
        raise
    return fd


def retire(fd: int) -> None:
    """Flush the segment to disk, close it and release its lock."""
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fields(segment: Segment) -> list[str] | None:
    """The names of the fields of a segment's rows, from the segment's first line; None if this line is damaged. Raises
    OSError."""
    with segment.path.open("rb") as file:
        head = checked(file.readline().removesuffix(b"\n"))
    if head is None:
        return None
    names: list[str] = orjson.loads(head)["fields"]
    return names


def read(segment: Segment, position: int) -> tuple[list[bytes], int]:
    """Read about 1 MiB of complete lines of a segment from byte `position` on. Returns the lines without newlines, and
    the position after the last of them. A last line that has no newline yet is not read. Raises OSError."""
    with segment.path.open("rb") as file:
        file.seek(position)
        data = file.read(READ_BYTES)
        if len(data) == READ_BYTES and b"\n" not in data:
            data += file.read()  # a line longer than the piece
    lines = data.split(b"\n")
    torn = lines.pop()
    return lines, position + len(data) - len(torn)


def released(segment: Segment) -> bool:
    """Return whether the worker that wrote the segment has closed it. Also true if the segment does not exist."""
    try:
        os.close(_share(segment))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _share(segment: Segment) -> int:
    """Open a segment with a shared lock and return the file descriptor. Raises OSError while a worker writes the
    segment."""
    fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


@contextmanager
def ended(directory: Path, last: Segment) -> Iterator[bool]:
    """Yield whether a worker is dead. `last`: the last segment of the worker's journal. If the worker is dead, no
    process can append to the journal inside the `with` block."""
    try:
        fd = _share(last)
    except OSError:
        yield False
        return
    try:
        # The worker may have continued in a new segment just before this lock was tried.
        yield not Segment.at(directory, last.lane, last.number + 1).path.exists()
    finally:
        os.close(fd)
