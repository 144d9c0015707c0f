"""The resources of a running gateway: data directory, listening socket, runtime file."""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from gateway.settings.files import ConfigError
from gateway.settings.gateway import Paths
from gateway.settings.running import register, unregister

log = logging.getLogger(__name__)

BACKLOG = 2048
STALE_S = 3.0
"""Maximum seconds for which the workers of a killed supervisor may still hold the supervisor's port."""


def occupy(paths: Paths) -> int:
    """Create the data directories and lock them. Returns the file descriptor of the lock; closing it releases the lock.
    Raises ConfigError if the directories cannot be used or are locked."""
    try:
        for folder in (paths.data, paths.journal, paths.valkey, paths.models, paths.files):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _own_alone(paths.data)
        lock = os.open(paths.data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            [f"{paths.data}: cannot be used as data directory ({error.strerror}); give another --data-dir"]
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise ConfigError(
            [f"{paths.data}: another gateway (pid {owner}) runs on this directory; stop it, or give another --data-dir"]
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _own_alone(folder: Path) -> None:
    """Remove other users' access to all files in `folder`, because earlier versions may have granted it. Raises
    OSError."""
    folder.chmod(0o700)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            with suppress(FileNotFoundError):
                mode = os.lstat(path).st_mode
                if mode & 0o077 and not stat.S_ISLNK(mode):
                    os.chmod(path, stat.S_IMODE(mode) & 0o700)


def listen(host: str, port: int, patience_s: float = 0.0) -> socket.socket:
    """Listen on a socket at `host` and `port`. If the port is in use, wait up to `patience_s` seconds. Raises
    ConfigError."""
    deadline = time.monotonic() + patience_s
    name = host.encode() if host.isascii() else host  # a str would import the tables for international names
    while True:
        try:
            family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            if time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            reason = (error.strerror or str(error)).partition(" (")[0]  # the address again, in parentheses
            raise ConfigError(
                [f"cannot listen on {host}:{port}: {reason}; choose others with --host and --port"]
            ) from error


def lift_file_limit() -> int:
    """Raise this process's limit of open files to the highest permitted value. Returns the new limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS reports "unlimited" and refuses it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def reachable(host: str) -> str:
    """The host name with which a client on this machine reaches a socket that listens at `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not bound


class RuntimeFile:
    """The file runtime.json, with facts about the running gateway for other commands. Each change is atomic. The file
    is deleted when the gateway ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    def left_behind(self) -> bool:
        """Return whether runtime.json exists. If it does before the first `write`, the last gateway with this data
        directory was killed."""
        return self._path.exists()

    def write(self, facts: dict[str, Any]) -> None:
        data = orjson.dumps(facts, option=orjson.OPT_INDENT_2)
        if data == self._written:
            return
        whole = self._path.with_suffix(".new")
        try:
            whole.write_bytes(data)
            whole.replace(self._path)
            if not self._written:
                register(os.getpid(), self._path.parent)
        except OSError as error:  # a disk error must not end the supervisor
            log.error("%s cannot be written: %s", error.filename or self._path, error)
        else:
            self._written = data

    def remove(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
            unregister(os.getpid())
        except OSError as error:
            log.error("%s cannot be removed: %s", self._path, error)
