"""Takes out of an exchange's bytes what has to differ between two runs, and nothing else.

Each rule replaces a value by a placeholder in angle brackets. Placeholders with a number keep identity within one
exchange: equal values get equal numbers, in the order in which they appear.

- ids: the 32 hexadecimal digits that the gateway makes for each request, told by the milliseconds in the first 12 of
  them. They are part of `req_…`, `msg_…`, `resp_…` and of all other ids derived from them; what is around the digits
  stays, also the two that number an item of a response. → `<id 1>`
- keys: the gateway's keys of the teams. → `<key of TEAM>`
- ports: those of the gateway and of the providers on 127.0.0.1. → `<port of NAME>`
- times: the values of `created`, `created_at` and `completed_at` in JSON that lie within the run. Providers' answers
  have other times, which stay. → `<time>`
- waits: where the gateway itself works out how long a client has to wait, or until when (spent budgets and limits),
  the headers and messages that say it → `<wait>`, moments such as 2026-12-01T00:00:00Z in messages → `<moment>`, and
  the `content-length` of such a message, which may be `1m0s` or `9.5s` → `<length>`. Those that are relayed from a
  provider stay.
- hops: the header that names the gateways a request has passed, which has this gateway's id → left out. It is tested in
  tests/e2e/test_chain.py.
- reasons: Python 3.13 renamed the phrases of four statuses, such as "422 Unprocessable Entity", as RFC 9110 has them →
  the former phrase.
- codings: what an encoded body holds is recorded, since libraries of different versions encode differently; its
  `content-length` → `<length of what was encoded>`
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Mapping

import brotli
import zstandard

_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?=(?:[0-9a-f]{2})?(?![0-9a-f]))")
_TIME = re.compile(rb'("(?:created|created_at|completed_at)":\s*)(\d{10}(?:\.\d+)?)')
_PORT = re.compile(rb"(127\.0\.0\.1:)(\d+)")
_WAIT = re.compile(
    rb"(?m)^((?:retry-after|retry-after-ms|x-ratelimit-reset-[a-z]+|anthropic-ratelimit-[a-z]+-reset): )([^\r\n]+)"
)
_SOON = re.compile(rb"(Try again in )([\dms.]+)")
_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_HOPS = re.compile(rb"\r\nx-thriftgate-hops: [0-9a-f]+(?=\r\n|$)")
_LENGTH = re.compile(rb"(?m)^(content-length: )(\d+)")
_REASON = re.compile(rb"\A(HTTP/1\.1 4\d\d )([A-Za-z ]+)(?=\r\n|$)")
_FORMER_REASONS = {
    b"Content Too Large": b"Request Entity Too Large",
    b"URI Too Long": b"Request-URI Too Long",
    b"Range Not Satisfiable": b"Requested Range Not Satisfiable",
    b"Unprocessable Content": b"Unprocessable Entity",
}


class Normaliser:
    """The rules, for the bytes of one exchange."""

    def __init__(self, keys: Mapping[str, str], ports: Mapping[int, str], *, since: float, waits: bool) -> None:
        """`keys`: team → key. `ports`: port → whose it is. `since`: Unix time at which the run began. `waits`: the
        gateway works waits out itself."""
        self._keys = [(key.encode(), f"<key of {team}>".encode()) for team, key in keys.items()]
        self._ports, self._since, self._waits = ports, since, waits
        self._ids: dict[bytes, int] = {}

    def text(self, data: bytes) -> bytes:
        """A body: ids, keys, ports, times and moments."""
        for key, placeholder in self._keys:
            data = data.replace(key, placeholder)
        data = _PORT.sub(self._port, data)
        data = _TIME.sub(self._time, data)
        if self._waits:
            data = _SOON.sub(rb"\1<wait>", _MOMENT.sub(b"<moment>", data))
        return _ID.sub(self._id, data)

    def head(self, data: bytes, body: bytes) -> bytes:
        """The head of a request or response with this `body`: all of it, reasons and waits."""
        data = _REASON.sub(_former_reason, _HOPS.sub(b"", self.text(data)))
        if self._waits:
            data = _WAIT.sub(rb"\1<wait>", data)
            data = _LENGTH.sub(rb"\1<length>", data) if _SOON.search(body) else data
        return data

    def _id(self, found: re.Match[bytes]) -> bytes:
        if not self._within(int(found[0][:12], 16) / 1000):
            return found[0]
        return b"<id %d>" % self._ids.setdefault(found[0], len(self._ids) + 1)

    def _port(self, found: re.Match[bytes]) -> bytes:
        name = self._ports.get(int(found[2]))
        return found[0] if name is None else found[1] + f"<port of {name}>".encode()

    def _time(self, found: re.Match[bytes]) -> bytes:
        return found[1] + b"<time>" if self._within(float(found[2])) else found[0]

    def _within(self, at: float) -> bool:
        return self._since - 1 <= at <= time.time() + 1


def _former_reason(found: re.Match[bytes]) -> bytes:
    return found[1] + _FORMER_REASONS.get(found[2], found[2])


def decoded(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    """A response without the coding of its body, which its head still names."""
    coding = re.search(rb"(?m)^content-encoding: (\w+)", head)
    if coding is None:
        return head, body
    return _LENGTH.sub(rb"\1<length of what was encoded>", head), _DECODERS[coding[1]](body)


_DECODERS: Mapping[bytes, Callable[[bytes], bytes]] = {
    b"gzip": lambda body: zlib.decompress(body, 31),
    b"deflate": zlib.decompress,
    b"br": brotli.decompress,
    b"zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
}
