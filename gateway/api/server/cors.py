"""CORS: decides which origins may read answers in a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.api.server.asgi import Headers

EXPOSED = (
    *("x-request-id", "request-id", "retry-after", "retry-after-ms", "x-should-retry", "idempotency-replayed"),
    *(f"x-thriftgate-{name}" for name in ("backend", "model", "cache", "difficulty", "trimmed-tokens", "escalated")),
    *("x-thriftgate-cost-usd", "x-thriftgate-degraded", "openai-processing-ms", "openai-version"),
    *(f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")),
    *(f"anthropic-ratelimit-{of}-{what}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")),
    "*",  # backends may also add headers; all are allowed, because no cookie is involved
)
METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""Methods that pages of other origins may send. If a path does not have the method, the answer is a 405 that the page
can read."""
_CLOSED = ("/admin", "/dashboard", "/metrics")
"""Prefixes of the operator's own paths, which pages of other origins may not read. The dashboard is served from the
gateway's origin, so it can read them."""
_ANY = b"*"
_DAY_S = 86400


def shared(path: str) -> bool:
    """Whether pages of other origins may read answers at `path`, provided that the operator allows these origins."""
    return not path.startswith(_CLOSED)


class Cors:
    """Adds CORS headers. If the operator lists origins, only pages of these origins may call the API. Otherwise all
    pages may."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.rstrip("/").lower().encode() for origin in origins)
        self._exposed = (b"access-control-expose-headers", ", ".join(EXPOSED).encode())

    def headers(self, origin: bytes) -> Headers:
        """Headers of the answer to a request with an `Origin`."""
        if self._any:
            return [(b"access-control-allow-origin", _ANY), self._exposed]
        if origin.lower() in self._origins:
            return [(b"access-control-allow-origin", origin), self._exposed, (b"vary", b"origin")]
        return [(b"vary", b"origin")]

    def preflight(self, asked: Mapping[bytes, bytes], methods: bytes) -> Headers:
        """Headers of the answer to OPTIONS. `asked`: the request's headers; `methods`: the methods of the path."""
        found: Headers = [(b"allow", methods)]
        if b"origin" not in asked:
            return found
        found += self.headers(asked[b"origin"])
        if found[1][0] == b"access-control-allow-origin":
            found.append((b"access-control-allow-methods", METHODS))
            wanted = asked.get(b"access-control-request-headers") or _ANY
            found.append((b"access-control-allow-headers", wanted))
            found.append((b"access-control-max-age", b"%d" % _DAY_S))
        return found
