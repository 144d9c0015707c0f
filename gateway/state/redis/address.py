"""Parses a state URL: kind of server, address, redis-py URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

Kind = Literal["unix", "tcp", "sentinel", "cluster"]

_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "unix": ("unix", False),
    "redis": ("tcp", False),
    "valkey": ("tcp", False),
    "rediss": ("tcp", True),
    "valkeys": ("tcp", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_DEFAULT_PORT: dict[Kind, int] = {"unix": 0, "tcp": 6379, "cluster": 6379, "sentinel": 26379}


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed state URL. `hosts` has one entry for tcp. For sentinel and cluster it has the addresses that are
    tried first.
    """

    kind: Kind
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    login: str = ""
    """`user:password@`, percent-encoded; may be empty."""
    database: int = 0
    query: str = ""
    """Options for redis-py, such as `ssl_ca_certs`."""
    tls: bool = False
    service: str = ""
    """Name under which Sentinel knows the master."""
    sentinel_password: str = ""
    own: bool = False
    """Whether the server must run as the same user as the gateway."""

    def __str__(self) -> str:
        """The address for messages, without login."""
        return self.path or ",".join(f"{host}:{port}" for host, port in self.hosts)

    def url(self, host: str = "", port: int = 0) -> str:
        """The URL of the server at `host` and `port` for redis-py. Without `host`, this is the URL of the first server
        in `hosts`.
        """
        if self.kind == "unix":
            return f"unix://{self.login}{self.path}?{self.query}"
        if not host:
            host, port = self.hosts[0]
        place = f"[{host}]" if ":" in host else host
        return f"{'rediss' if self.tls else 'redis'}://{self.login}{place}:{port}/{self.database}?{self.query}"


def parse(url: str) -> Address:
    """Parse `unix:///path.sock`, `redis://user:password@host:port/db`, `rediss://…`,
    `redis+sentinel://h1,h2/service/db` or `redis+cluster://h1,h2`.

    `?ssl_ca_certs=FILE&ssl_cert_reqs=none` are options for TLS; `?peer=own` requires a unix socket's server to run as
    the same user. Raises ValueError.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"state.redis_url: unknown scheme {parts.scheme!r}; use one of {', '.join(_SCHEMES)}")
    kind, secure = _SCHEMES[parts.scheme]
    options = dict(parse_qsl(parts.query))
    sentinel_password = options.pop("sentinel_password", "")
    own = kind == "unix" and options.pop("peer", "") == "own"
    login, at, places = parts.netloc.rpartition("@")
    service, database = _segments(kind, parts, options)
    return Address(
        kind=kind,
        hosts=() if kind == "unix" else tuple(_host(place, kind) for place in places.split(",")),
        path=parts.path if kind == "unix" else "",
        login=login + at,
        database=database,
        query=urlencode(options),
        tls=secure,
        service=service,
        sentinel_password=sentinel_password,
        own=own,
    )


def _segments(kind: Kind, parts: SplitResult, options: dict[str, str]) -> tuple[str, int]:
    """(Service, database number) from the path of the URL."""
    segments = [] if kind == "unix" else [segment for segment in parts.path.split("/") if segment]
    service = ""
    if kind == "sentinel":
        if not segments:
            raise ValueError("state.redis_url: name the sentinel service: redis+sentinel://host:26379/SERVICE")
        service = unquote(segments.pop(0))
    number = options.get("db") or (segments[0] if segments else "0")
    if not number.isdecimal():
        raise ValueError(f"state.redis_url: the database must be a number, not {number!r}")
    if kind == "cluster" and int(number):
        raise ValueError("state.redis_url: a cluster has one database only, number 0")
    return service, int(number)


def _host(place: str, kind: Kind) -> tuple[str, int]:
    split = urlsplit(f"//{place}")
    return split.hostname or "localhost", split.port or _DEFAULT_PORT[kind]
