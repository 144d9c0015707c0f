"""Takes out of an exchange's bytes what has to differ between two runs, and nothing else.

Each rule replaces a value by a placeholder in angle brackets. Placeholders with a number keep identity within one
exchange: equal values get equal numbers, in the order in which they appear.

- ids: the 32 hexadecimal digits that the gateway makes for each request. They are part of `req_…`, `msg_…`, `resp_…`
  and of all other ids derived from them; what is around the digits stays, also the two that number an item of a
  response. → `<id 1>`
- keys: the gateway's keys of the teams. → `<key of TEAM>`
- ports: those of the gateway and of the providers on 127.0.0.1. → `<port of NAME>`
- times: the values of `created`, `created_at` and `completed_at` in JSON, unless they are the scripted provider's
  constant. → `<time>`
- waits: headers that say how long to wait, or until when. → `<wait>`
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.fakes.provider_openai import CREATED

_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?=(?:[0-9a-f]{2})?(?![0-9a-f]))")
_TIME = re.compile(rb'("(?:created|created_at|completed_at)":\s*)(\d{10}(?:\.\d+)?)')
_PORT = re.compile(rb"(127\.0\.0\.1:)(\d+)")
_WAIT = re.compile(
    rb"(?m)^((?:retry-after|retry-after-ms|x-ratelimit-reset-[a-z]+|anthropic-ratelimit-[a-z]+-reset): )([^\r\n]+)"
)


class Normaliser:
    """The rules, for the bytes of one exchange."""

    def __init__(self, keys: Mapping[str, str], ports: Mapping[int, str]) -> None:
        """`keys`: team → key. `ports`: port → whose it is."""
        self._keys = [(key.encode(), f"<key of {team}>".encode()) for team, key in keys.items()]
        self._ports = ports
        self._ids: dict[bytes, int] = {}

    def text(self, data: bytes) -> bytes:
        """A body: ids, keys, ports and times."""
        for key, placeholder in self._keys:
            data = data.replace(key, placeholder)
        data = _PORT.sub(self._port, data)
        data = _TIME.sub(_time, data)
        return _ID.sub(self._id, data)

    def head(self, data: bytes) -> bytes:
        """A request's or response's head: all of it, and waits."""
        return _WAIT.sub(rb"\1<wait>", self.text(data))

    def _id(self, found: re.Match[bytes]) -> bytes:
        return b"<id %d>" % self._ids.setdefault(found[0], len(self._ids) + 1)

    def _port(self, found: re.Match[bytes]) -> bytes:
        name = self._ports.get(int(found[2]))
        return found[0] if name is None else found[1] + f"<port of {name}>".encode()


def _time(found: re.Match[bytes]) -> bytes:
    return found[0] if found[2] == b"%d" % CREATED else found[1] + b"<time>"
