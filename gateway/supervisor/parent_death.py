"""Ties a process to its parent: the kernel kills it when the parent is gone.

As a program, `python -IS tether.py PARENT COMMAND…`, it becomes COMMAND. It runs in a fresh interpreter instead of
between fork and exec of ours, where threads make Python code unsafe. The kernel means the *thread* that started us: it
must live as long as its process does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int | bytes) -> bool:
    """Linux only; whether the kernel did it."""
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def prefix() -> list[str]:
    """The words to put before a command whose program is given with its full path."""
    return [sys.executable, "-IS", __file__, str(os.getpid())]


def tie(parent: int) -> bool:
    """False if `parent` is not, or no longer, this process's parent: nothing would end this process then."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def main() -> None:
    if not tie(int(sys.argv[1])):
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - the supervisor's own command


if __name__ == "__main__":
    main()
