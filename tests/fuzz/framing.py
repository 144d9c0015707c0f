"""Requests on the wire whose framing is changed: heads, lengths, chunks, trailers, pipelining, codings."""

from __future__ import annotations

import gzip
from random import Random

from tests.fuzz.mutate import SPOILERS, spoilt, written
from tests.fuzz.seeds import HELLO, INFERENCE, OTHERS

HEADERS = (
    "Content-Length: 0",
    "Content-Length: 5",
    "Content-Length: -1",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length: 99999999999999999999",
    "Content-Length: 0x5",
    "Content-Length:",
    "Content-Length : 5",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: Chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: xchunked",
    "Host: other",
    "Host:",
    "Host: a b",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: upgrade",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQAAP__",
    "Expect: 100-continue",
    "Expect: 200-ok",
    "Content-Encoding: gzip",
    "Content-Encoding: br",
    "Content-Encoding: zstd",
    "Content-Encoding: deflate",
    "Content-Encoding: identity",
    "Content-Encoding: gzip, gzip",
    "Accept-Encoding: gzip",
    "Accept-Encoding: *;q=0, br;q=nan",
    "Origin: null",
    "Authorization: Basic eDp5",
    "Authorization: Bearer",
    "Authorization: Bearer \xff",
    "x-api-key: \x7f",
    "Content-Type: text/plain",
    "Content-Type: multipart/form-data",
    "Content-Type: multipart/form-data; boundary=",
    "Content-Type: application/json; charset=utf-16",
    "x-thriftgate-cache: sometimes",
    "x-thriftgate-deadline: nan",
    "x-thriftgate-deadline: -1",
    "x-thriftgate-deadline: 1e999",
    "x-thriftgate-tags: a=b, =, c",
    "x-thriftgate-session: \xe9",
    "x-thriftgate-priority: highest",
    "x-thriftgate-candidates: ,",
    "Idempotency-Key: a",
    "Idempotency-Key:",
    "Range: bytes=0-",
    "anthropic-version: 2023-06-01",
    "anthropic-beta: a, b",
    "traceparent: 00-0-0-0",
    "baggage: =",
    "Folded: a\r\n b",
    "Trailer: authorization",
    "TE: trailers",
    "No colon",
    ": no name",
    "Bad\x00Name: a",
    "A: " + "b" * 9_000,
    "Date: never",
    "x-request-id: \x01",
    "Content-Length: 5\r\nContent-Length: 6",
    "Forwarded: for=a",
    "X-Forwarded-For: 1.2.3.4",
)
METHODS = ("POST", "GET", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PRI", "post", "G\x00T", "", "PATCH")
VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "http/1.1", "HTTP/1.1 ", "HTTP/", "")
TARGETS = (
    "*",
    "//v1/models",
    "http://other/v1/models",
    "/v1/./models",
    "/v1/%2e%2e/admin/keys",
    "/v1/models%00",
    "/%",
    "/v1/models#a",
    "/v1/models?%ff=%zz",
    "/\xff",
    "/" + "a" * 8_000,
    "/v1/models?" + "a&" * 4_000,
    "",
    "models",
    "/v1//models",
    "/admin/keys/",
)


def message(random: Random, key: str) -> bytes:
    """One or more requests, changed in how they are framed; the last closes the connection when it is understood."""
    parts = [_request(random, key) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    data = b"".join(parts)
    if random.random() < 0.4:
        data = spoilt(random, data)
    return data + b"GET /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def _request(random: Random, key: str) -> bytes:
    if random.random() < 0.6:
        path, fields = random.choice((*INFERENCE, ("/v1/chat/completions", HELLO)))
        method, body = "POST", written(fields)
    else:
        method, path, given = random.choice(OTHERS)
        body = written(given) if given is not None else b""
    method = random.choice(METHODS) if random.random() < 0.1 else method
    target = random.choice(TARGETS) if random.random() < 0.1 else path
    version = random.choice(VERSIONS) if random.random() < 0.05 else "HTTP/1.1"
    lines = [f"{method} {target} {version}", "Host: localhost", f"Authorization: Bearer {key}"]
    lines += ["Content-Type: application/json"] if body else []
    if random.random() < 0.1:
        body = gzip.compress(body) if random.random() < 0.7 else spoilt(random, gzip.compress(body))
        lines.append("Content-Encoding: gzip")
    if random.random() < 0.4:
        lines.append("Transfer-Encoding: chunked")
        body = _chunked(random, body)
    elif body:
        lines.append(f"Content-Length: {len(body) + random.choice((0, 0, 0, 0, 0, -1, 1, 5))}")
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        lines.insert(random.randint(1, len(lines)), random.choice(HEADERS))
    if random.random() < 0.03:
        lines += [f"h{number}: a" for number in range(random.choice((200, 3_000)))]
    end = "\n" if random.random() < 0.03 else "\r\n"
    return end.join([*lines, "", ""]).encode("latin-1", "replace") + body


def _chunked(random: Random, body: bytes) -> bytes:
    """In chunks, of which some have odd sizes, extensions and trailers."""
    found, size = bytearray(), random.choice((1_000, 100, 7))
    body = body[: size * 50]
    for start in range(0, len(body), size):
        piece = body[start : start + size]
        length = b"%x" % len(piece)
        if random.random() < 0.02:
            length = random.choice(
                (
                    b"0x5",
                    b"-1",
                    b"",
                    b"ffffffffffffffff",
                    b"%X;a=b" % len(piece),
                    b"5;" + b"a" * 5_000,
                    b"00000" + length,
                )
            )
        found += length + b"\r\n" + piece + (random.choice(SPOILERS) if random.random() < 0.01 else b"\r\n")
    trailers = random.choice((b"", b"", b"a: b\r\n", b"content-length: 5\r\n", b"x: " + b"y" * 9_000 + b"\r\n"))
    return bytes(found) + random.choice((b"0\r\n", b"0\r\n", b"000\r\n", b"0;a\r\n", b"")) + trailers + b"\r\n"
