"""Addresses, request heads and the check of response heads: values in, values out."""

from __future__ import annotations

import pytest

from gateway.backends.http.wire import Origin, check_head
from gateway.errors import BackendGarbage, BackendUnreachable


@pytest.mark.parametrize(
    ("base_url", "authority", "target"),
    [
        ("http://127.0.0.1:9001/v1", b"127.0.0.1:9001", "/v1/chat"),
        ("http://127.0.0.1:9001/v1/", b"127.0.0.1:9001", "/v1/chat"),
        ("http://example.com", b"example.com", "/chat"),
        ("http://EXAMPLE.com:80/", b"example.com", "/chat"),
        ("https://example.com:443/v1", b"example.com", "/v1/chat"),
        ("https://example.com:80/v1", b"example.com:80", "/v1/chat"),
        ("https://[::1]:8000/v1", b"[::1]:8000", "/v1/chat"),
        ("https://bücher.example/v1", b"xn--bcher-kva.example", "/v1/chat"),
        ("https://x.example/d/gpt?api-version=1", b"x.example", "/d/gpt/chat?api-version=1"),
    ],
)
def test_a_base_url_is_taken_apart(base_url: str, authority: bytes, target: str) -> None:
    origin = Origin.parse(base_url)
    assert origin.authority == authority
    assert origin.target("/chat") == target


def test_a_query_of_the_path_and_one_of_the_base_url_both_reach_the_target() -> None:
    assert Origin.parse("http://x/v1?a=1").target("/models?b=2") == "/v1/models?b=2&a=1"


@pytest.mark.parametrize(
    "base_url", ["ftp://x/", "x.example/v1", "http://", "http://user:hunter2@x/", "http://x:99999/", "unix:///run/x"]
)
def test_what_is_no_http_address_is_refused(base_url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the reason differs
        Origin.parse(base_url)


def test_a_refused_address_never_repeats_its_password() -> None:
    with pytest.raises(ValueError, match="api_key") as refused:
        Origin.parse("http://user:hunter2@x/")
    assert "hunter2" not in str(refused.value)


def test_the_head_is_exactly_these_bytes() -> None:
    head = Origin.parse("http://x:1/v1").head("POST", "/chat", [(b"authorization", b"Bearer k")], 7)
    assert head == (
        b"POST /v1/chat HTTP/1.1\r\nhost: x:1\r\naccept-encoding: identity\r\n"
        b"authorization: Bearer k\r\ncontent-length: 7\r\n\r\n"
    )


@pytest.mark.parametrize("path", ["/a b", "/a\r\nx: y", "/a\nb", "/ä"])
def test_a_path_cannot_tear_the_head_apart(path: str) -> None:
    with pytest.raises(BackendUnreachable):
        Origin.parse("http://x").head("GET", path, [], 0)


@pytest.mark.parametrize(
    ("status", "headers", "bounded"),
    [
        (200, [(b"content-length", b"3")], True),
        (200, [(b"transfer-encoding", b"chunked")], True),
        (200, [], False),
        (204, [], True),
        (304, [], True),
        (200, [(b"content-encoding", b"identity"), (b"x", b"y")], False),
    ],
)
def test_a_clear_head_says_where_the_body_ends(status: int, headers: list[tuple[bytes, bytes]], bounded: bool) -> None:
    assert check_head(status, headers, "small") == (bounded, False)


def test_a_body_that_comes_encoded_is_told() -> None:
    assert check_head(200, [(b"content-encoding", b"BR"), (b"content-length", b"3")], "small") == (True, True)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (99, []),
        (101, []),
        (200, [(b"content-length", b"3"), (b"content-length", b"3")]),
        (200, [(b"content-length", b"3 ")]),
        (200, [(b"content-length", b"")]),
        (200, [(b"content-length", b"\xb2")]),
        (200, [(b"content-length", b"3"), (b"transfer-encoding", b"chunked")]),
        (200, [(b"transfer-encoding", b"identity")]),
        (200, [(b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")]),
    ],
)
def test_an_unclear_head_is_garbage(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(BackendGarbage, match="small sent") as garbage:
        check_head(status, headers, "small")
    assert garbage.value.backend == "small"
