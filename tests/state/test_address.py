"""State URLs."""

from __future__ import annotations

import pytest

from gateway.state.address import Address, parse


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("unix:///run/a%20b.sock", Address("unix", path="/run/a b.sock")),
        ("unix:///a.sock?db=2&password=x", Address("unix", path="/a.sock", database=2, password="x")),
        ("redis://host", Address("tcp", (("host", 6379),))),
        ("valkey://u:p%40@[::1]:7/4", Address("tcp", (("::1", 7),), username="u", password="p@", database=4)),
        (
            "redis+sentinel://:p@a,b:1/m/2?sentinel_password=s",
            Address("sentinel", (("a", 26379), ("b", 1)), password="p", database=2, service="m", sentinel_password="s"),
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
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_with_a_remedy(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(url)


def test_tls_checks_certificates_unless_told_otherwise() -> None:
    checked, unchecked = parse("rediss://host").tls, parse("rediss://host?ssl_cert_reqs=none").tls
    assert checked
    assert unchecked
    assert (checked.check_hostname, unchecked.check_hostname) == (True, False)


def test_a_password_is_never_shown() -> None:
    assert "secret" not in str(parse("redis://:secret@host:1"))


def test_the_login_comes_before_the_database() -> None:
    assert parse("redis://u:p@h/2").login() == [("AUTH", "u", "p"), ("SELECT", "2")]
    assert parse("redis://:p@h").login() == [("AUTH", "p")]
