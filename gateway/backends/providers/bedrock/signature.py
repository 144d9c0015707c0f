"""Signs requests with AWS Signature Version 4.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote, unquote

_ALGORITHM = "AWS4-HMAC-SHA256"

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of an AWS identity."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)
    """Session token of temporary credentials."""
    expires_at: float | None = None
    """Unix seconds; None: the credentials do not expire."""


def signed(
    method: str,
    target: str,
    headers: Iterable[Header],
    body: bytes,
    credentials: Credentials,
    *,
    region: str,
    service: str,
    now: float,
) -> list[Header]:
    """Return `headers` with `x-amz-date`, the session token and `authorization`. The signature covers all headers.

    `headers` must contain `host`. `target`: path and query as sent. `now`: Unix seconds.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    every = [*headers, (b"x-amz-date", stamp.encode())]
    if credentials.token:
        every.append((b"x-amz-security-token", credentials.token.encode()))
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    canonical, names = canonical_request(method, target, every, body)
    to_sign = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256(canonical).hexdigest()))
    key = _signing_key(credentials.secret, stamp[:8], region, service)
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    value = f"{_ALGORITHM} Credential={credentials.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return [*every, (b"authorization", value.encode())]


def canonical_request(method: str, target: str, headers: Iterable[Header], body: bytes) -> tuple[bytes, str]:
    """The canonical request of the signature algorithm, and the names of the headers in it."""
    path, _, query = target.partition("?")
    merged: dict[str, list[str]] = {}
    for name, value in headers:
        merged.setdefault(name.decode("latin-1").lower(), []).append(" ".join(value.decode().split()))
    lines = [f"{name}:{','.join(merged[name])}" for name in sorted(merged)]
    names = ";".join(sorted(merged))
    parts = (method, _path(path), _query(query), *lines, "", names, hashlib.sha256(body).hexdigest())
    return "\n".join(parts).encode(), names


def _path(path: str) -> str:
    """The path without `.`, `..` and empty segments. The path is encoded a second time, as all AWS services except S3
    require."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    ending = "/" if kept and path.endswith("/") else ""
    return quote(f"/{'/'.join(kept)}{ending}", safe="/~")


def _query(query: str) -> str:
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    coded = ((quote(unquote(name), safe="~"), quote(unquote(value), safe="~")) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in sorted(coded))


@lru_cache(maxsize=16)
def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
