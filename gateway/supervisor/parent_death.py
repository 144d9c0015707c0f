"""Makes the kernel kill a process when its parent ends.

The module can run as a program: `python -IS parent_death.py PARENT_PID COMMAND…`. The program makes this setting for
its own process and then executes COMMAND in this process. A separate program is needed, because Python code between
fork and exec is unsafe in a process with threads. The kernel kills the process when the *thread* that started it
ends. Therefore this thread must live as long as the process is needed.
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
    """Call prctl(2), which exists on Linux only. Returns whether it succeeded."""
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def command_prefix() -> list[str]:
    """The words that must precede a command, so that its process ends with this one. The command must begin with the
    full path of its program."""
    return [sys.executable, "-IS", __file__, str(os.getpid())]


def die_with(parent: int) -> bool:
    """Make the kernel kill this process when its parent ends (Linux only). Returns False if `parent` is no longer the
    parent; then this process should exit."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def keep_writing() -> None:
    """Ignore SIGTTOU, also in the children of this process. A process in another group than the terminal's would
    otherwise stop at its first log line on a terminal with `stty tostop`."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)


def main() -> None:
    if not die_with(int(sys.argv[1])):
        sys.exit(1)
    keep_writing()
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - the supervisor's own command


if __name__ == "__main__":
    main()
