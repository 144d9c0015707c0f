"""Tunes Python's garbage collector: it is off during the start, it ignores long-lived objects, and free memory is
returned to the system."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (10_000, 2, 500)
"""Thresholds for the three generations of the collector. The first is the number of new objects before a collection. It
is high (Python's default is 700, since 3.13 2,000), because requests create few reference cycles. The second is low,
because a collection of the second generation stops the event loop for 1.3 ms per 20,000 objects, and for 25 ms per
200,000."""

_M_ARENA_MAX = -8
"""The value of M_ARENA_MAX in glibc's malloc.h."""


@contextmanager
def postponed() -> Iterator[None]:
    """Suspend garbage collection in the `with` block. Use it around imports: garbage collection would take a fifth
    of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle() -> None:
    """Collect garbage once, and exclude all present objects from later collections. Call it when the process has
    started. Takes up to 50 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
    give_back()


def leave_out() -> None:
    """Exclude all present objects from later collections. This takes microseconds. Cycles among these objects are never
    freed, so do not call it for each request."""
    gc.freeze()


def one_heap() -> None:
    """Make all threads use the same heap of the C library. Call it before another thread starts. By default each thread
    has its own heap, which never shrinks."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return the C library's free memory to the system, if the library supports this."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc only
            libc.malloc_trim(0)
