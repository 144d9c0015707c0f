"""A client of bytes: it sends what no HTTP library would, and reads whatever comes."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse

PATIENCE_S = 30.0
"""For an answer to a request that is whole."""
QUIET_S = 0.3
"""For more answers to bytes that may be no whole request."""
_STATUS = re.compile(rb"(?:^|\r\n|\})HTTP/1\.1 (\d{3})")


@dataclass(frozen=True)
class Answer:
    """Status 0: the connection ended without an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """One connection to the gateway, made again when it ends."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._socket: socket.socket | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send one request; `path` and header values as they stand. Raises TimeoutError when nothing comes."""
        lines = [
            f"{method} {path} HTTP/1.1", "host: localhost", f"authorization: Bearer {self._key}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]  # fmt: skip
        if body is not None:
            lines += ["content-type: application/json"] if "content_type" not in headers else []
            lines += [f"content-length: {len(body)}"]
        data = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (body or b"")
        fresh = self._socket is None
        answer = self._asked(method, data)
        if answer.status == 0 and not fresh:  # an idle connection that the gateway had closed
            answer = self._asked(method, data)
        return answer

    def _asked(self, method: str, data: bytes) -> Answer:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)
        response = HTTPResponse(self._socket, method=method)
        status, headers, body = 0, {}, b""
        try:
            response.begin()
            status, headers = response.status, {name.lower(): value for name, value in response.getheaders()}
            body = response.read()
            if response.will_close:
                self.close()
        except (ConnectionError, HTTPException):
            self.close()
        except TimeoutError:
            self.close()
            raise
        finally:
            response.close()
        return Answer(status, headers, body)


def raw(port: int, data: bytes) -> list[int]:
    """Send `data` on a connection of its own; the statuses of all answers until nothing more comes."""
    came = bytearray()
    link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    with link, contextlib.suppress(ConnectionError, TimeoutError):
        link.sendall(data)
        link.settimeout(QUIET_S)
        while got := link.recv(65536):
            came += got
    return [int(status) for status in _STATUS.findall(bytes(came))]
