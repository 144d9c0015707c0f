"""Servers that the gateway depends on, each a child of ours behind a proxy: killed, frozen, slowed, filled, mended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from gateway.state.redis.embedded import find_binary
from gateway.supervisor import parent_death
from loadtests.ports import free_port

REPOSITORY = Path(__file__).parents[1]
START_S = 15.0


def launch(command: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
    """A child that the kernel ends with us."""
    return subprocess.Popen([*parent_death.command_prefix(), *command], cwd=REPOSITORY, start_new_session=True, **more)


def end(process: subprocess.Popen[bytes]) -> None:
    """At once, frozen or not."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Proxy:
    """The line to a server; see `matrix_proxy`."""

    def __init__(self, target: str) -> None:
        self._process = launch(
            [sys.executable, "-m", "loadtests.matrix_proxy", target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())

    def behave(self, *, delay_s: float = 0.0, answer: str = "") -> None:
        """Returns when it does."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(orjson.dumps({"delay_s": delay_s, "answer": answer}) + b"\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def stop(self) -> None:
        end(self._process)


class StateServer:
    """A Valkey in memory only: killed, it comes back empty."""

    def __init__(self, binary: str | None = None) -> None:
        self._port = free_port()
        self._command = [
            binary or find_binary(), "--port", str(self._port), "--save", "", "--appendonly", "no",
            "--loglevel", "warning", "--logfile", "/dev/null",
        ]  # fmt: skip
        self.start()
        self.proxy = Proxy(f"127.0.0.1:{self._port}")
        self.url = f"redis://127.0.0.1:{self.proxy.port}"

    def start(self) -> None:
        self._process = launch(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while not self.ask("PING").startswith(b"+PONG"):
            if time.monotonic() > until:
                raise RuntimeError("the state server did not start")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> bytes:
        """The reply to one command, nothing when there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1.0) as client:
                client.settimeout(2.0)
                client.sendall(line.encode() + b"\r\n")
                return client.recv(65536)
        except OSError:
            return b""

    def figure(self, name: str) -> int:
        """A number of its INFO; 0 when it does not tell."""
        _, found, rest = self.ask("INFO memory").partition(f"\n{name}:".encode())
        return int(rest.split(b"\r", 1)[0]) if found else 0

    def strike(self, fault: str) -> None:
        match fault:
            case "killed":
                end(self._process)
            case "frozen":
                send([self.pid], signal.SIGSTOP)
            case "slow":
                self.proxy.behave(delay_s=0.4)
            case "full":
                self.ask("CONFIG SET maxmemory-policy noeviction")
                self.ask("CONFIG SET maxmemory 1")

    def mend(self, fault: str) -> None:
        match fault:
            case "killed":
                self.start()
            case "frozen":
                send([self.pid], signal.SIGCONT)
            case "slow":
                self.proxy.behave()
            case "full":
                self.ask("CONFIG SET maxmemory 0")

    def stop(self) -> None:
        self.proxy.stop()
        end(self._process)


class Provider:
    """A scripted backend."""

    def __init__(self, record: Path, *, tokens: int = 20, drip_ms: float = 2.0) -> None:
        self._port = free_port()
        self.record = record
        self._command = [
            sys.executable, "-m", "tests.fakes.provider", "--port", str(self._port), "--record", str(record),
            "--tokens", str(tokens), "--drip-ms", str(drip_ms),
        ]  # fmt: skip
        self.start()
        self.proxy = Proxy(f"127.0.0.1:{self._port}")
        self.url = f"http://127.0.0.1:{self.proxy.port}/v1"

    def start(self) -> None:
        self._process = launch(self._command, stdout=subprocess.PIPE)
        assert self._process.stdout
        self._process.stdout.readline()

    @property
    def pid(self) -> int:
        return self._process.pid

    def strike(self, fault: str) -> None:
        match fault:
            case "killed":
                end(self._process)
            case "frozen":
                send([self.pid], signal.SIGSTOP)
            case "slow":
                self.proxy.behave(delay_s=0.5)
            case "full":
                self.proxy.behave(answer=refusal(429, "Too Many Requests", "retry-after: 3\r\n"))
            case "error":
                self.proxy.behave(answer=refusal(500, "Internal Server Error"))

    def mend(self, fault: str) -> None:
        match fault:
            case "killed":
                self.start()
            case "frozen":
                send([self.pid], signal.SIGCONT)
            case _:
                self.proxy.behave()

    def stop(self) -> None:
        self.proxy.stop()
        end(self._process)


def refusal(status: int, words: str, headers: str = "") -> str:
    body = '{"error": {"message": "scripted", "type": "server_error"}}'
    head = f"HTTP/1.1 {status} {words}\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}"
