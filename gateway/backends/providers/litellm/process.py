"""Litellm's process: its socket, and the command that runs it. Also starts the process in programs without a
supervisor."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Protocol

_BACKLOG = 1024
_PATH_BYTES = 100
"""Maximum bytes of a socket's path. The kernel's limit is 108 bytes on Linux and 104 bytes on macOS."""
_END_S = 3.0
"""Seconds after SIGTERM until the process is killed."""


def socket_path(folder: Path) -> Path:
    """The path of the socket of the gateway whose data are in `folder`.

    If a path in `folder` is too long for the kernel, the socket is in a folder of the temporary directory.
    """
    path = folder / "litellm.sock"
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    return Path(tempfile.gettempdir()) / f"thriftgate-{token_hex(8)}" / path.name


def listen(path: Path) -> socket.socket:
    """Listen on a Unix socket at `path`. The folder of `path` is created if necessary; no other user can enter it.
    Raises OSError."""
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def remove(listener: socket.socket) -> None:
    """Close `listener` and remove its path. Also remove the folder of the path, if the folder is then empty."""
    path = Path(listener.getsockname())
    listener.close()
    path.unlink(missing_ok=True)
    with suppress(OSError):  # the data directory has other files
        path.parent.rmdir()


def command(listener: socket.socket) -> list[str]:
    """The command that runs litellm's process on `listener`. The caller passes the file descriptor to the process."""
    return [sys.executable, "-m", "gateway.backends.providers.litellm.server", "--fd", str(listener.fileno())]


class Process(Protocol):
    """The interface of litellm's process for a provider."""

    @property
    def path(self) -> str:
        """The path of the process's socket."""
        ...

    async def start(self) -> None:
        """Start the process if it does not run. Calls can be sent at once; they wait in the socket's queue."""
        ...


class Supervised:
    """The process that the supervisor starts and keeps running."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def start(self) -> None:
        """Does nothing: the supervisor starts the process when the first connection arrives."""


class OwnProcess:
    """Starts litellm's process for a program that runs without a supervisor."""

    def __init__(self) -> None:
        self._path = Path(tempfile.gettempdir()) / f"thriftgate-{token_hex(8)}" / "litellm.sock"
        self._listener: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def path(self) -> str:
        return str(self._path)

    async def start(self) -> None:
        if self._listener is None:
            self._listener = listen(self._path)
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *command(self._listener),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(self._listener.fileno(),),
            )

    async def aclose(self) -> None:
        """End the process and remove the socket."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(_END_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._listener is not None:
            remove(self._listener)
            self._listener = None
