"""Which origin is told that it may read, and what a preflight hears."""

from __future__ import annotations

import pytest

from gateway.api.server.cors import Cors, shared
from gateway.settings.gateway import CorsSettings

ORIGIN = b"access-control-allow-origin"


def test_any_page_may_read_unless_the_operator_says_otherwise() -> None:
    headers = dict(Cors(CorsSettings().origins).headers(b"https://app.example.com"))
    assert headers[ORIGIN] == b"*"
    exposed = headers[b"access-control-expose-headers"].decode().split(", ")
    for name in ("x-request-id", "request-id", "retry-after-ms", "x-thriftgate-cost-usd", "x-ratelimit-reset-tokens"):
        assert name in exposed
    assert "anthropic-ratelimit-requests-remaining" in exposed
    assert b"access-control-allow-credentials" not in headers


def test_only_named_origins_may_and_caches_know_it() -> None:
    cors = Cors(("https://app.example.com", "http://localhost:3000"))
    assert dict(cors.headers(b"https://App.example.com"))[ORIGIN] == b"https://App.example.com"
    assert dict(cors.headers(b"http://localhost:3000"))[b"vary"] == b"origin"
    for stranger in (b"https://evil.example.com", b"null", b"https://app.example.com.evil.com", b"*"):
        assert cors.headers(stranger) == [(b"vary", b"origin")]
    assert Cors(()).headers(b"https://app.example.com") == [(b"vary", b"origin")]


def test_a_preflight_is_told_what_it_asks_for() -> None:
    asked = {
        b"origin": b"https://app.example.com",
        b"access-control-request-method": b"POST",
        b"access-control-request-headers": b"authorization,content-type,x-stainless-os",
    }
    told = dict(Cors(("*",)).preflight(asked, b"OPTIONS, POST"))
    assert told[ORIGIN] == b"*"
    assert told[b"access-control-allow-headers"] == b"authorization,content-type,x-stainless-os"
    assert {b"POST", b"GET", b"DELETE"} <= set(told[b"access-control-allow-methods"].split(b", "))
    assert int(told[b"access-control-max-age"]) > 0
    del asked[b"access-control-request-headers"]
    assert dict(Cors(("*",)).preflight(asked, b"OPTIONS, POST"))[b"access-control-allow-headers"] == b"*"
    told = dict(Cors(("https://other.example.com",)).preflight(asked, b"OPTIONS, POST"))
    assert not [name for name in told if name.startswith(b"access-control")]
    assert b"POST" in dict(Cors(("*",)).preflight({}, b"OPTIONS, POST"))[b"allow"]


@pytest.mark.parametrize(
    ("path", "may"),
    [
        *((path, True) for path in ("/v1/chat/completions", "/chat/completions", "/", "/health", "/nothing")),
        *((path, False) for path in ("/admin/keys", "/dashboard", "/dashboard/static/page.js", "/metrics")),
    ],
)
def test_what_is_the_operators_own_is_never_shared(path: str, may: bool) -> None:
    assert shared(path) is may


@pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/", "https://a b", "https://", ""])
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        CorsSettings(origins=(origin,))
