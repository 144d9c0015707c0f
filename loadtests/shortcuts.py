"""`python -m loadtests shortcuts`: what each longer form that the code keeps for speed buys over the plain one.

Each pair does the same work; both forms are checked to return the same. A pair is timed in turns, and the median of the
ratios counts, so that a noisy machine does not decide. A ratio near 1 means: write the plain form.
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gateway.admission.counter_group import CounterGroup
from gateway.dialects.openai_chat.request import MAX_DEPTH, few_brackets
from gateway.dialects.streams.sse import has_any

ROUNDS, ROUND_S = 9, 0.02


@dataclass(frozen=True, slots=True)
class Shortcut:
    """Two forms of one function."""

    name: str
    module: str
    """Where the kept form stands."""
    kept: Callable[[], Any]
    plain: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Of one shortcut. Times are nanoseconds a call, medians over the rounds."""

    name: str
    module: str
    kept_ns: float
    plain_ns: float
    ratio: float
    """Plain ÷ kept, the median of the rounds' ratios."""


@contextmanager
def shortcuts() -> Iterator[list[Shortcut]]:
    """All that the code keeps, while a socket pair is open for them."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield [_marks(), _leases(), _brackets(), _one_write(ours, theirs)]


def _marks() -> Shortcut:
    block = b'data: {"choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}]}\n\n'
    marks = (b'"error"', b'"usage":{', b'"finish_reason":"')
    return Shortcut(
        "has_any: loop over rfind, for any() over `in`",
        "gateway/dialects/streams/sse.py",
        lambda: has_any(block, marks),
        lambda: any(mark in block for mark in marks),
    )


def _leases() -> Shortcut:
    group = CounterGroup.__new__(CounterGroup)
    leases: Any = (SimpleNamespace(generation=3), SimpleNamespace(generation=4))
    group.leases = leases
    return Shortcut(
        "CounterGroup.known: loop, for all()",
        "gateway/admission/counter_group.py",
        lambda: group.known,
        lambda: all(lease.generation for lease in group.leases),
    )


def _brackets() -> Shortcut:
    turn = b'{"role":"user","content":"' + b"What does this function return? " * 100 + b'"},'
    body = b'{"model":"m","messages":[' + turn * 10 + turn[:-1] + b"]}"
    return Shortcut(
        "few_brackets: replace, for count (35 kB)",
        "gateway/dialects/openai_chat/request.py",
        lambda: few_brackets(body),
        lambda: body.count(b"{") + body.count(b"[") <= MAX_DEPTH,
    )


def _one_write(ours: socket.socket, theirs: socket.socket) -> Shortcut:
    head, body, size = b"h" * 300, b"b" * 4096, 4396

    def read() -> int:
        left = size
        while left:
            left -= len(theirs.recv(65536))
        return size

    def kept() -> int:
        ours.sendall(head + body)
        return read()

    def plain() -> int:
        ours.sendall(head)
        ours.sendall(body)
        return read()

    return Shortcut("head and body in one write, for two", "gateway/backends/http/connection.py", kept, plain)


def measure(shortcut: Shortcut, rounds: int = ROUNDS, round_s: float = ROUND_S) -> Timing:
    """Both forms in turns; which one goes first is drawn for each round."""
    if shortcut.kept() != shortcut.plain():
        raise AssertionError(f"{shortcut.name}: the two forms differ")
    calls = max(1, int(round_s / max(_seconds(shortcut.plain, 20) / 20, 1e-9)))
    kept, plain = list[float](), list[float]()
    for _ in range(rounds):
        first = random.random() < 0.5
        for is_kept in (first, not first):
            form, seconds = (shortcut.kept, kept) if is_kept else (shortcut.plain, plain)
            seconds.append(_seconds(form, calls) / calls * 1e9)
    ratio = statistics.median(slow / fast for slow, fast in zip(plain, kept, strict=True))
    return Timing(shortcut.name, shortcut.module, statistics.median(kept), statistics.median(plain), ratio)


def _seconds(form: Callable[[], Any], calls: int) -> float:
    begun = time.process_time_ns()
    for _ in range(calls):
        form()
    return (time.process_time_ns() - begun) / 1e9


def main(arguments: Sequence[str]) -> int:
    """Print the table. Exit status 1 where a kept form is slower than the plain one."""
    parser = argparse.ArgumentParser(prog="python -m loadtests shortcuts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    with shortcuts() as all_of_them:
        timings = [measure(each, options.rounds) for each in all_of_them]
    print(f"{'kept form, for the plain one':48} {'kept ns':>9} {'plain ns':>9} {'ratio':>6}  module")
    for each in timings:
        module = Path(each.module).relative_to("gateway")
        print(f"{each.name:48} {each.kept_ns:9.0f} {each.plain_ns:9.0f} {each.ratio:6.2f}  {module}")
    return int(any(each.ratio < 1 for each in timings))
