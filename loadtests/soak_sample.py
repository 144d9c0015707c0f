"""What a running gateway occupies, read every few seconds: memory, descriptors, threads, tasks, journal, state, lag."""

from __future__ import annotations

import asyncio
import re
import socket
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from loadtests import procfs
from loadtests.matrix_gateway import MatrixGateway

_TASKS = re.compile(r'thriftgate_room\{[^}]*figure="tasks"[^}]*\} ([0-9.e+]+)')
_SCRAPES = 4
"""A scrape is answered by any one of the workers."""


@dataclass(frozen=True, slots=True)
class Occupied:
    """By one process. Bytes, and counts."""

    pss: int
    rss: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Sampled:
    at: float
    """Seconds since the soak began."""
    processes: Mapping[str, Occupied]
    """`supervisor`, `worker 1`, …, `state`."""
    tasks: int
    """Of the busiest event loop that answered."""
    journal_bytes: int
    undrained_bytes: int
    """Of the journal, not in the ledger yet."""
    state_bytes: int


def occupied(pid: int) -> Occupied | None:
    """None when it has ended."""
    place = procfs.PROC / str(pid)
    try:
        rollup = (place / "smaps_rollup").read_text()
        rss = next(line for line in rollup.splitlines() if line.startswith("Rss:"))
        return Occupied(
            procfs.parse_pss(rollup),
            int(rss.split()[1]) * 1024,
            len(list((place / "fd").iterdir())),
            len(list((place / "task").iterdir())),
        )
    except (OSError, StopIteration):
        return None


def processes(gateway: MatrixGateway) -> dict[str, Occupied]:
    assert gateway.process
    facts = gateway.facts
    named = {"supervisor": gateway.process.pid}
    named |= {f"worker {number}": pid for number, pid in enumerate(facts["workers"])}
    if facts["valkey"]:
        named["state"] = facts["valkey"]["pid"]
    return {name: found for name, pid in named.items() if (found := occupied(pid))}


def tasks(gateway: MatrixGateway) -> int:
    """0 when no scrape came back."""
    most = 0.0
    for _ in range(_SCRAPES):
        request = urllib.request.Request(
            f"{gateway.base}/metrics", headers={"authorization": f"Bearer {gateway.keys['admin']}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=2) as reply:
                text = reply.read().decode()
        except urllib.error.HTTPError as error:
            error.close()
            continue
        except OSError:
            continue
        most = max([most, *map(float, _TASKS.findall(text))])
    return int(most)


def journal(gateway: MatrixGateway) -> tuple[int, int]:
    """(bytes of all segments, bytes of them that the ledger has not read)."""
    folder, sqlite = gateway.data / "journal", gateway.data / "ledger.sqlite"
    with closing(sqlite3.connect(f"file:{sqlite}?mode=ro", uri=True, timeout=5)) as connection:
        places = connection.execute("SELECT lane, segment, position FROM journal_offsets").fetchall()
    read = {lane: (segment, position) for lane, segment, position in places}
    whole = undrained = 0
    for path in folder.glob("*.journal"):
        lane, _, number = path.name.removesuffix(".journal").rpartition(".")
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            continue
        segment, position = read.get(lane, (0, 0))
        whole += size
        undrained += size if int(number) > segment else size - position if int(number) == segment else 0
    return whole, undrained


def state_bytes(gateway: MatrixGateway) -> int:
    """`used_memory` of the embedded server; 0 when it does not answer."""
    facts = gateway.facts["valkey"]
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2.0)
            client.connect(str(Path(facts["url"].removeprefix("unix://"))))
            client.sendall(b"INFO memory\r\n")
            told = client.recv(65536)
    except (OSError, TypeError):
        return 0
    _, found, rest = told.partition(b"used_memory:")
    return int(rest.split(b"\r", 1)[0]) if found else 0


def sample(gateway: MatrixGateway, began: float) -> Sampled:
    """Blocking."""
    whole, undrained = journal(gateway)
    at = time.monotonic() - began
    return Sampled(at, processes(gateway), tasks(gateway), whole, undrained, state_bytes(gateway))


async def sample_on(gateway: MatrixGateway, every_s: float, into: list[Sampled]) -> None:
    """Until cancelled."""
    began = time.monotonic()
    while True:
        into.append(await asyncio.to_thread(sample, gateway, began))
        await asyncio.sleep(every_s)
