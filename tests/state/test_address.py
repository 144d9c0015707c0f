"""State URLs."""

from __future__ import annotations

import pytest

from gateway.state.redis.address import Address, parse


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("unix:///a.sock?db=2&password=x", Address("unix", path="/a.sock", database=2, query="db=2&password=x")),
        ("redis://host", Address("tcp", (("host", 6379),))),
        ("valkeys://u:p%40@[::1]:7/4", Address("tcp", (("::1", 7),), login="u:p%40@", database=4, tls=True)),
        (
            "redis+sentinel://:p@a,b:1/m/2?sentinel_password=s",
            Address("sentinel", (("a", 26379), ("b", 1)), login=":p@", database=2, service="m", sentinel_password="s"),
        ),
        ("redis+cluster://a:1,b", Address("cluster", (("a", 1), ("b", 6379)))),
    ],
)
def test_a_url_is_understood(url: str, meant: Address) -> None:
    assert parse(url) == meant


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://host", "unknown scheme 'http'"),
        ("redis+sentinel://host:26379", "name the sentinel service"),
        ("redis://host/nine", "must be a number"),
        ("redis+cluster://host/1", "one database only"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_with_a_remedy(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(url)


def test_a_password_is_never_shown() -> None:
    assert "secret" not in str(parse("redis://:secret@host:1"))
    assert "secret" not in str(parse("unix:///a.sock?password=secret"))


def test_the_master_that_sentinel_names_is_logged_in_to_as_the_url_says() -> None:
    address = parse("rediss+sentinel://u:p%40@a,b/m/2?ssl_cert_reqs=none")
    assert address.url("::2", 7) == "rediss://u:p%40@[::2]:7/2?ssl_cert_reqs=none"
