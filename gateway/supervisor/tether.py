"""Becomes a program that the kernel kills when its parent is gone: `python -IS tether.py PARENT COMMAND…`.

It runs in a fresh interpreter instead of between fork and exec of ours, where threads make Python code unsafe. The
kernel means the *thread* that started us: it must live as long as its process does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def prefix() -> list[str]:
    """The words to put before a command whose program's path is whole."""
    return [sys.executable, "-IS", __file__, str(os.getpid())]


def main() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it went before the kernel was told
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - the supervisor's own command


if __name__ == "__main__":
    main()
