"""A state URL, understood: where the server is, how to log in, and whether TLS is spoken."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

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
    """What a URL says. `hosts` has one entry for tcp, any number of seeds for sentinel and cluster."""

    kind: Kind
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    username: str = ""
    password: str = ""
    database: int = 0
    service: str = ""
    """Sentinel's name of the master."""
    sentinel_password: str = ""
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        """For messages: never a password."""
        return self.path or ",".join(f"{host}:{port}" for host, port in self.hosts)

    def login(self) -> list[tuple[str, ...]]:
        """The commands that a fresh connection begins with."""
        commands: list[tuple[str, ...]] = []
        if self.password:
            commands.append(("AUTH", self.username, self.password) if self.username else ("AUTH", self.password))
        if self.database:
            commands.append(("SELECT", str(self.database)))
        return commands


def parse(url: str) -> Address:
    """`unix:///path.sock`, `redis://user:password@host:port/db`, `rediss://…`, `redis+sentinel://h1,h2/service/db`,
    `redis+cluster://h1,h2`; `?ssl_ca_certs=FILE&ssl_cert_reqs=none` for TLS. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"state.redis_url: unknown scheme {parts.scheme!r}; use one of {', '.join(_SCHEMES)}")
    kind, secure = _SCHEMES[parts.scheme]
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    login, _, places = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    service, database = _segments(kind, parts, options)
    return Address(
        kind=kind,
        hosts=() if kind == "unix" else tuple(_host(place, kind) for place in places.split(",")),
        path=unquote(parts.path) if kind == "unix" else "",
        username=unquote(username),
        password=unquote(password) or options.get("password", ""),
        database=database,
        service=service,
        sentinel_password=options.get("sentinel_password", ""),
        tls=_tls(options) if secure else None,
    )


def _segments(kind: Kind, parts: SplitResult, options: dict[str, str]) -> tuple[str, int]:
    """The service and the database number from the URL's path."""
    segments = [] if kind == "unix" else [segment for segment in parts.path.split("/") if segment]
    service = ""
    if kind == "sentinel":
        if not segments:
            raise ValueError("state.redis_url: name the sentinel service: redis+sentinel://host:26379/SERVICE")
        service = unquote(segments.pop(0))
    number = options.get("db") or (segments[0] if segments else "0")
    if not number.isdecimal():
        raise ValueError(f"state.redis_url: the database must be a number, not {number!r}")
    return service, int(number)


def _host(place: str, kind: Kind) -> tuple[str, int]:
    split = urlsplit(f"//{place}")
    return split.hostname or "localhost", split.port or _DEFAULT_PORT[kind]


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_check_hostname", "").lower() in ("false", "0", "no"):
        context.check_hostname = False
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "ssl_certfile" in options:
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    return context
