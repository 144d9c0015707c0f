"""`thriftgate dev`: tests a gateway. The command `attack` sends requests that a correct gateway must refuse."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import click
import orjson

from gateway.cli import tables
from gateway.cli.develop.chaos import chaos
from gateway.cli.develop.history import history
from gateway.cli.develop.loadtest import loadtest
from gateway.cli.options import Context, common

TOTAL_S = 30.0
EACH_S = 8.0
"""Maximum seconds to wait for one answer."""
SLOW_S = 14.0
"""Maximum seconds to wait until a slow upload is refused. By default, a gateway requires a minimum rate after 10 s."""
DRIP_S = 0.5
"""Seconds between two bytes of the slow upload."""
MOST_ANSWER = 65_536
"""Maximum bytes of an answer that are read."""
UNKNOWN = "thriftgate-dev-attack"
"""The model in every body. If the gateway accepts the body, it finds no backend with this name, so no call is made."""
CHAT = "/v1/chat/completions"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_EMPTY_MEMBERS = 20_000


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. `wanted`: the statuses that count as a refusal; 0 means that the connection is closed without an
    answer."""

    name: str
    data: bytes
    wanted: tuple[int, ...]
    secret: re.Pattern[bytes] | None = None
    """Pattern that the answer must not contain."""
    drip: bytes = b""
    """Bytes that are sent after `data`, one every DRIP_S seconds, until an answer arrives."""


def attacks(host: str, key: str) -> Iterator[Attack]:
    """Yield the attacks one by one, because some of them are large. `host`: value of the Host header."""
    authorised = f"authorization: Bearer {key}"

    def get(path: str, *more: str) -> bytes:
        return _head("GET", path, host, *more)

    def post(body: bytes, *more: str) -> bytes:
        length, kind = f"content-length: {len(body)}", "content-type: application/json"
        return _head("POST", CHAT, host, authorised, kind, length, *more) + body

    hello = orjson.dumps({"model": UNKNOWN, "messages": [{"role": "user", "content": "hello"}]})
    yield Attack("two codings (gzip, gzip)", post(_gzip(_gzip(hello)), "content-encoding: gzip, gzip"), (400, 413, 415))
    members = _gzip(b"") * _EMPTY_MEMBERS + _gzip(hello)
    yield Attack("20,000 empty gzip members", post(members, "content-encoding: gzip"), (400, 413))
    yield Attack("a key only in a trailer", _trailer(host, hello, authorised), (0, 400, 401, 403))
    yield Attack("two Host headers", get("/v1/models", authorised, "host: elsewhere"), (0, 400))
    many = [f"x-{number}: a" for number in range(10_000)]
    yield Attack("10,000 headers", get("/v1/models", authorised, *many), (0, 400, 408, 413, 431))
    for path in ("/%61dmin/keys", "/admin%2fkeys", "/v1/../admin/keys", "/v1/%2e%2e/admin/keys", "//admin/keys"):
        yield Attack(f"ordinary key: {path}", get(path, authorised), (0, 400, 401, 403, 404), _KEYS)
    for path in ("/admin/keys", "/admin/usage", "/admin/policies", "/metrics"):
        yield Attack(f"ordinary key: {path}", get(path, authorised), (401, 403, 404))
    name = orjson.dumps({"model": "m" * 15 * 2**20, "messages": []})
    yield Attack("a model's name of 15 MiB", post(name), (0, 400, 404, 413))
    turns = orjson.dumps({"model": UNKNOWN, "messages": [{"role": "user", "content": "a"}] * 200_000})
    yield Attack("200,000 messages", post(turns), (0, 400, 413))
    for path in ("/v1/usage?since=999999d", f"/v1/files?limit={'9' * 5000}", "/v1/batches?limit=-1"):
        yield Attack(f"odd parameter: {path[:30]}", get(path, authorised), (400, 401, 403, 404, 414))
    for path in ("/v1/files/file-0", "/v1/files/file-0/content", "/v1/responses/resp_0", "/v1/batches/batch_0"):
        yield Attack(f"an unknown id: {path}", get(path, authorised), (401, 403, 404))
    yield Attack("details of /health without a key", get("/health"), (200, 401, 403, 404, 503), _DETAILS)

    length, slow = "content-length: 100000", b" " * int(SLOW_S / DRIP_S)
    head = _head("POST", CHAT, host, authorised, "content-type: application/json", length)
    yield Attack("a slow upload", head, (0, 408), drip=slow)


_KEYS = re.compile(rb'"(keys|team)"')
_DETAILS = re.compile(rb'"(backends|database|version)"')


def _head(method: str, path: str, host: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"host: {host}", "connection: close", *lines, "", ""]).encode()


def _gzip(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=31)
    return packing.compress(data) + packing.flush()


def _trailer(host: str, body: bytes, trailer: str) -> bytes:
    head = _head("POST", CHAT, host, "content-type: application/json", "transfer-encoding: chunked")
    return b"%b%x\r\n%b\r\n0\r\n%b\r\n\r\n" % (head, len(body), body, trailer.encode())


@dataclass(frozen=True, slots=True)
class Outcome:
    attack: str
    wanted: str
    found: str
    ok: bool


def outcome(attack: Attack, connect: Callable[[], socket.socket], until: float) -> Outcome:
    """Send `attack`, and check the first final answer. `until`: the monotonic time, in seconds, at which to give up.
    Raises OSError if it cannot connect."""
    wanted = " or ".join(str(status) if status else "closed" for status in attack.wanted)
    if attack.secret is not None:
        wanted += ", without details"
    until = min(until, time.monotonic() + (SLOW_S if attack.drip else EACH_S))
    link = connect()
    with link:
        came = _exchanged(link, attack, until)
    found = [int(status) for status in _STATUS.findall(came) if status != b"100"]
    status = found[0] if found else 0
    if came is not _LATE and status in attack.wanted:
        leaked = attack.secret is not None and attack.secret.search(came) is not None
        return Outcome(attack.name, wanted, f"{status or 'closed'}{', with details' if leaked else ''}", not leaked)
    return Outcome(attack.name, wanted, "no answer in time" if came is _LATE else str(status or "closed"), False)


_LATE = b"\0late"


def _exchanged(link: socket.socket, attack: Attack, until: float) -> bytes:
    """The bytes that arrived before the other side closed the connection. `until`: the monotonic time, in seconds, at
    which to give up. Returns the marker `_LATE` if no bytes arrived until then."""
    came = bytearray()
    try:
        with contextlib.suppress(
            ConnectionError
        ):  # if the connection was closed before everything was sent, the answer may have arrived
            link.settimeout(max(0.1, until - time.monotonic()))
            link.sendall(attack.data)
            if attack.drip:
                came += _dripped(link, attack.drip, until)
        while len(came) < MOST_ANSWER:
            link.settimeout(max(0.1, until - time.monotonic()))
            if not (piece := link.recv(65_536)):
                break
            came += piece
    except ConnectionError:
        pass
    except TimeoutError:
        return bytes(came) or _LATE
    return bytes(came)


def _dripped(link: socket.socket, body: bytes, until: float) -> bytes:
    """The first bytes that arrive while `body` is being sent. `until`: the monotonic time, in seconds, at which to give
    up. Raises TimeoutError if no bytes arrive."""
    for byte in body:
        link.settimeout(max(0.1, until - time.monotonic()))
        link.sendall(bytes((byte,)))
        link.settimeout(max(0.1, min(DRIP_S, until - time.monotonic())))
        with contextlib.suppress(TimeoutError):
            return link.recv(65_536)
    raise TimeoutError


def _connecting(url: str) -> tuple[str, Callable[[], socket.socket]]:
    """The value of the Host header, and a function that connects. Raises UsageError."""
    address = urlsplit(url if "//" in url else f"http://{url}")
    if address.scheme not in ("http", "https") or not address.hostname or address.path not in ("", "/"):
        raise click.UsageError("URL must be a gateway's address without a path, such as http://127.0.0.1:8080.")
    name, port = address.hostname, address.port or (443 if address.scheme == "https" else 80)

    def connect() -> socket.socket:
        link = socket.create_connection((name, port), timeout=EACH_S)
        if address.scheme == "http":
            return link
        import ssl

        return ssl.create_default_context().wrap_socket(link, server_hostname=name)

    return address.netloc.rpartition("@")[2], connect


@click.group()
def dev() -> None:
    """Test a gateway from outside: attack it, kill and freeze it under load, measure it; invent a history."""


dev.add_command(chaos)
dev.add_command(loadtest)
dev.add_command(history)


@dev.command("attack", short_help="Send requests that a correct gateway refuses.")
@common
@click.argument("url")
@click.option("--key", required=True, envvar="THRIFTGATE_KEY", help="An ordinary key; default: $THRIFTGATE_KEY.")
def attack(context: Context, url: str, key: str) -> None:
    """Attack the gateway at URL with an ordinary key, for at most half a minute.

    Every attack is one bounded request that is refused before a backend is called, so nothing is bought or changed.
    Prints the expected and the actual result of each. Exit status: 1 when an attack was not refused.

    \b
    thriftgate dev attack http://127.0.0.1:8080 --key tg-...
    """
    host, connect = _connecting(url)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise click.UsageError("--key contains characters that no key has.")
    until, found = time.monotonic() + TOTAL_S, []
    try:
        for each in attacks(host, key):
            if time.monotonic() >= until:
                found.append(Outcome(each.name, "", f"not tried within {TOTAL_S:.0f} s", False))
            else:
                found.append(outcome(each, connect, until))
    except OSError as error:
        raise click.ClickException(f"Cannot connect to {host}: {error}") from error
    rows = [{"attack": each.attack, "wanted": each.wanted, "found": each.found, "ok": each.ok} for each in found]
    context.print(rows, lambda: _show(found))
    sys.exit(0 if all(each.ok for each in found) else 1)


def _show(found: list[Outcome]) -> None:
    table = tables.Table(*tables.prose("attack", "wanted", "found"), "")
    for each in found:
        table.add_row(each.attack, each.wanted, each.found, "ok" if each.ok else "failed")
    tables.console(highlight=False).print(table)
