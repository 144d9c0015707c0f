"""Validates a request's head: size limits, one host, canonical path."""

from __future__ import annotations

import re

from gateway.api.server.asgi import Headers
from gateway.errors import BadRequest, HeadTooLarge, TargetTooLong

MAX_HEAD_BYTES = 64 * 2**10
MAX_TARGET_BYTES = 8 * 2**10
"""Maximum bytes of path and query."""
MOST_HEADERS = 128
"""Maximum header fields. Browsers, and vendors' SDKs behind several proxies, send about forty."""
MOST_PER_BYTE = 8
"""Framing bytes that are allowed per byte of a chunked body, in addition to MAX_HEAD_BYTES. A chunk with one byte of
the body needs 5 framing bytes."""
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_FREE_NAMES = (b"/v1/models/", b"/models/")
"""Prefixes of paths with a model's name, in which clients may write `/` plain or escaped."""


def too_large() -> HeadTooLarge:
    return HeadTooLarge(f"The request's head, or what frames its body, is larger than {MAX_HEAD_BYTES} bytes.")


def framing_too_large() -> HeadTooLarge:
    return HeadTooLarge(
        f"The chunks of the body are framed in more than {MAX_HEAD_BYTES} bytes and {MOST_PER_BYTE} for each byte of "
        "it; send larger chunks, without extensions."
    )


def target_too_long() -> TargetTooLong:
    return TargetTooLong(
        f"The request's path and query are longer than {MAX_TARGET_BYTES} bytes; send long values in a body."
    )


def check_head(url: bytes, headers: Headers, version: str) -> None:
    """Check the head of a request. Raises HeadTooLarge above the size limits. Raises BadRequest if there are several
    `Host` headers, or none (HTTP/1.0 needs none).
    """
    if len(headers) > MOST_HEADERS:
        raise HeadTooLarge(f"The request has {len(headers)} header fields; at most {MOST_HEADERS} are read.")
    if len(url) + sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEAD_BYTES:
        raise too_large()
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (not hosts and version != "1.0"):
        raise BadRequest(f"A request has one Host header (RFC 9112, section 3.2); this one has {hosts}.")


def check_path(url: bytes) -> None:
    """Check the path. Raises BadRequest if percent escapes hide the real path. Such a path could bypass a proxy's
    rule for `/admin`.
    """
    path = url.partition(b"?")[0]
    if b"%" not in path:
        return
    for found in _ESCAPE.finditer(path):
        code = int(found[1], 16) if found[1] else 0
        hides = code in _UNRESERVED or code < 0x20 or code == 0x7F
        if hides or (code in b"/\\" and not path.startswith(_FREE_NAMES)):
            raise BadRequest(
                f"The path has the escape {found[0].decode()}; send letters, digits, -._~ and / as they are, and no "
                "control characters."
            )
