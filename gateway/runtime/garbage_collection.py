"""Tuning of Python's garbage collector: off during start-up, long-lived objects frozen, memory returned."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (10_000, 20, 50)
"""Requests leave little behind that refers to itself: look after so many new objects, not after 700."""

_M_ARENA_MAX = -8
"""glibc's name for it, from malloc.h."""


@contextmanager
def postponed() -> Iterator[None]:
    """While modules are imported, all is new and all stays: looking for garbage takes a fifth of that time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle() -> None:
    """The process has started: clear up once, and leave what is there now out of later looks.

    Takes some 50 ms, or a few where the modules were left out before this process was forked.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
    _give_back()


def leave_out() -> None:
    """What there is now stays: later looks pass it over. Takes microseconds; garbage that refers to itself and was not
    found before stays too, so this is for after bulk, not for every request."""
    gc.freeze()


def one_heap() -> None:
    """Call before there are threads: they will share the C library's heap. One for each, as is usual, never shrinks."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_M_ARENA_MAX, 1)


def _give_back() -> None:
    """Free memory to the system, where the C library can be asked to."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc's alone
            libc.malloc_trim(0)
