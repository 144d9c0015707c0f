"""Writes HTTP/1.1 request heads and checks response heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from gateway.errors import BackendGarbage, BackendUnreachable

Headers = Sequence[tuple[bytes, bytes]]

MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of a response head."""

_OURS = frozenset(
    (
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
        b"expect",
        b"accept-encoding",
    )
)
"""Header fields that describe the connection. The gateway writes them itself and ignores the values that a caller
passes."""

_BODILESS = frozenset((204, 304))
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"content-encoding"))


@dataclass(frozen=True, slots=True)
class Origin:
    """The parts of a backend's base URL."""

    tls: bool
    host: str
    port: int
    literal: bool
    """Whether the host is an IP address, which needs no name resolution."""
    authority: bytes
    """The value of the `host` header."""
    prefix: str
    """The path of the base URL, without a trailing slash."""
    query: str
    """The query of the base URL, for example `api-version=…`. The query is sent with every request."""

    @classmethod
    def parse(cls, base_url: str) -> Self:
        """Parse a base URL of the form `http(s)://host[:port][/path][?query]`. Raises ValueError if it has another
        form."""
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"{base_url!r} must begin with http:// or https:// and name a host")
        if url.username is not None or url.password is not None:
            raise ValueError("a base URL must not hold a user or password; give the secret as api_key")
        tls, literal, host = url.scheme == "https", _is_address(url.hostname), url.hostname
        if not literal:
            host = host.encode("idna").decode("ascii")
        port = url.port or (443 if tls else 80)
        shown = f"[{host}]" if ":" in host else host
        if port != (443 if tls else 80):
            shown = f"{shown}:{port}"
        return cls(tls, host, port, literal, shown.encode("ascii"), url.path.rstrip("/"), url.query)

    def target(self, path: str) -> str:
        """The request target (path and query) of a request to `path` below the base URL."""
        if not self.query:
            return self.prefix + path
        return f"{self.prefix}{path}{'&' if '?' in path else '?'}{self.query}"

    def opening(self, method: str, path: str, headers: Headers) -> bytes:
        """The request head up to the `content-length` line, which is not included. Raises BackendUnreachable if the
        head contains invalid characters."""
        lines = [
            f"{method} {self.target(path)} HTTP/1.1".encode(),
            b"host: " + self.authority,
            b"accept-encoding: identity",
            *[key + b": " + value for key, value in headers if key.lower() not in _OURS],
        ]
        opening = b"\r\n".join(lines) + b"\r\n"
        breaks = len(lines)
        clean = opening.count(b"\n") == breaks == opening.count(b"\r") and b"\0" not in opening
        if not clean or " " in path or not path.isascii():
            problem = "a line break or blank would tear the request's head apart; check api_key"
            raise BackendUnreachable(problem).of_operator()
        return opening

    def head(self, method: str, path: str, headers: Headers, length: int) -> bytes:
        """The complete head of a request whose body has `length` bytes. Raises BackendUnreachable if the head contains
        invalid characters."""
        opening = self.opening(method, path, headers)
        return opening + (b"content-length: %d\r\n\r\n" % length if length or method != "GET" else b"\r\n")


def check_head(status: int, headers: Headers, name: str) -> tuple[bool, bool]:
    """Check the head of a response. `name`: the backend's name in errors. Raises BackendGarbage for contradictory
    lengths or an unwanted change of protocol.

    Returns two values: whether the head states where the body ends, and whether the body is encoded.
    """
    if status < 100 or status == 101:
        raise BackendGarbage(f"{name} sent the status {status}, which answers nothing", backend=name)
    length = chunked = encoded = False
    for key, value in headers:
        if key not in _FRAMING:
            continue
        if key == b"content-encoding":
            encoded = encoded or value.lower() not in (b"", b"identity")
        elif key == b"content-length":
            if length or not value.isdigit():
                raise BackendGarbage(f"{name} sent a conflicting or unreadable content-length", backend=name)
            length = True
        else:
            if chunked or value.lower() != b"chunked":
                raise BackendGarbage(f"{name} sent a transfer-encoding other than chunked", backend=name)
            chunked = True
    if length and chunked:
        raise BackendGarbage(f"{name} sent both a content-length and a transfer-encoding", backend=name)
    return length or chunked or status in _BODILESS, encoded


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
