"""A worker's end in the hard mix: what lay unread in its sockets, and what its calls had generated unseen.

The worker is stopped before it is killed, and the provider shares this event loop: nothing moves while it is counted.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from loadtests.hard_provider import Call, Meter

_STOP_S = 1.0


@dataclass(slots=True)
class Lost:
    """Of the calls that a worker had under way when it was killed; USD."""

    calls: int = 0
    unread_usd: float = 0.0
    """Output that the provider had written and the worker had not read: nobody could book it."""
    silent_usd: float = 0.0
    """Output that was generated and not written: reasoning, and plain answers that were not sent yet."""
    later_usd: float = 0.0
    """Output that was generated after the kill, until the provider noticed."""


class Kill:
    """One worker, killed once."""

    def __init__(self, meter: Meter, provider_port: int) -> None:
        self._meter, self._port = meter, provider_port
        self._calls: list[tuple[Call, int]] = []
        self._lost = Lost()

    def strike(self, pid: int) -> None:
        """Synchronous. Raises ProcessLookupError when there is no such process."""
        os.kill(pid, signal.SIGSTOP)
        try:
            _stopped(pid)
            queued = unread(pid, self._port)
            for call in self._meter.under_way:
                if call.port not in queued:
                    continue
                written, read = call.written, call.written_within(queued[call.port] + call.buffered)
                self._calls.append((call, call.generated))
                self._lost.unread_usd += call.output_usd(written - read)
                self._lost.silent_usd += call.output_usd(call.generated - written)
        finally:
            os.kill(pid, signal.SIGKILL)

    def lost(self) -> Lost:
        """Once all calls are over."""
        self._lost.calls = len(self._calls)
        self._lost.later_usd = sum(call.output_usd(call.generated - before) for call, before in self._calls)
        return self._lost


def _stopped(pid: int) -> None:
    """Blocks on purpose: while this loop does not turn, the provider generates nothing."""
    until = time.monotonic() + _STOP_S
    while time.monotonic() < until:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZX":
            return


def unread(pid: int, provider_port: int) -> dict[int, int]:
    """Local port of each connection of `pid` to the provider → bytes in the kernel that it has not read.

    What the provider's end still has to send counts too.
    """
    own = {link for file in Path(f"/proc/{pid}/fd").iterdir() if (link := _link(file)).startswith("socket:[")}
    found: dict[int, int] = {}
    sending: dict[int, int] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
        sent, received = (int(number, 16) for number in fields[4].split(":"))
        if remote == provider_port and f"socket:[{fields[9]}]" in own:
            found[local] = received
        elif local == provider_port:
            sending[remote] = sent
    return {port: received + sending.get(port, 0) for port, received in found.items()}


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
