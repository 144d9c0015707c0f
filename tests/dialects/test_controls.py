"""The request headers that speak to the gateway."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.dialects.controls import check_overrides, parse_controls
from gateway.domain.policy import Policy
from gateway.domain.request import Controls
from gateway.errors import BadRequest, Forbidden
from tests.fakes.litellm_proxy import FORWARDED


def test_without_headers_nothing_is_asked() -> None:
    assert parse_controls({b"content-type": b"application/json"}) == Controls()


def test_every_header_is_understood() -> None:
    headers = {
        b"x-thriftgate-cache": b"Refresh",
        b"x-thriftgate-cache-tags": b"docs, v2,docs",
        b"x-thriftgate-tier": b"large",
        b"x-thriftgate-deadline": b"1m30s",
        b"x-thriftgate-tags": b"team=search, feature=answers to people",
        b"x-thriftgate-session": b"s-1",
        b"x-thriftgate-context": b"untouched",
        b"x-thriftgate-priority": b"Batch",
        b"x-thriftgate-invented": b"tomorrow",
    }
    assert parse_controls(headers) == Controls(
        cache="refresh",
        cache_tags=("docs", "v2"),
        tier="large",
        deadline_s=90.0,
        tags={"team": "search", "feature": "answers to people"},
        session="s-1",
        untouched=True,
        priority="batch",
    )


@pytest.mark.parametrize(
    ("value", "seconds"), [(b"30", 30.0), (b"0.5", 0.5), (b"30s", 30.0), (b"250ms", 0.25), (b"99d", 86400.0)]
)
def test_a_deadline_is_seconds_with_or_without_unit(value: bytes, seconds: float) -> None:
    assert parse_controls({b"x-thriftgate-deadline": value}).deadline_s == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"cache", b"never"),
        (b"cache", b"\xff"),
        (b"cache-tags", b"a b"),
        (b"cache-tags", b",".join(b"t%d" % n for n in range(17))),
        (b"tier", b"huge"),
        (b"deadline", b"soon"),
        (b"deadline", b"0"),
        (b"deadline", b"-3"),
        (b"deadline", b"nan"),
        (b"deadline", b"inf"),
        (b"tags", b"lonely"),
        (b"tags", b"a=" + b"x" * 200),
        (b"session", b"two words"),
        (b"session", b"x" * 257),
        (b"context", b"trimmed"),
    ],
)
def test_a_wrong_value_is_refused_naming_the_header(name: bytes, value: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_controls({b"x-thriftgate-" + name: value})
    assert caught.value.param == "x-thriftgate-" + name.decode()
    assert caught.value.param in caught.value.message


def test_hops_and_the_highest_cost_are_read() -> None:
    found = parse_controls({b"x-thriftgate-hops": b"a1, b2", b"x-thriftgate-max-usd": b"0.05"})
    assert (found.hops, found.max_usd) == (("a1", "b2"), Decimal("0.05"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hops", ",".join("abcdefghi")),
        *((name, "a b") for name in ("hops", "cache-scope")),
        *(("max-usd", text) for text in ("-1", "1e3", "nan", "1" * 20)),
    ],
)
def test_hops_and_costs_that_cannot_be_meant_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_controls({f"x-thriftgate-{name}".encode(): value.encode()})
    assert caught.value.param == f"x-thriftgate-{name}"


def test_a_request_may_say_that_it_is_interactive_which_changes_nothing() -> None:
    assert parse_controls({b"x-thriftgate-priority": b"interactive"}) == Controls()


@pytest.mark.parametrize("name", ["cache", "tier", "context"])
def test_a_policy_may_deny_overrides_and_the_refusal_names_its_rule(name: str) -> None:
    value = {"cache": b"bypass", "tier": b"large", "context": b"untouched"}[name]
    controls = parse_controls({b"x-thriftgate-" + name.encode(): value})
    check_overrides(controls, Policy(team="search"))
    with pytest.raises(
        Forbidden, match=f"x-thriftgate-{name} is refused by `overrides: denied` in the policy of team s"
    ):
        check_overrides(controls, Policy(team="search", overrides="denied"))


def test_labels_and_deadlines_override_nothing() -> None:
    headers = {b"x-thriftgate-tags": b"a=b", b"x-thriftgate-session": b"s", b"x-thriftgate-deadline": b"5s"}
    check_overrides(parse_controls(headers), Policy(team="search", overrides="denied"))


def litellm(**headers: str) -> Controls:
    return parse_controls(
        {f"x-litellm-{name.replace('_', '-')}".encode(): value.encode() for name, value in headers.items()}
    )


def test_what_a_litellm_proxy_forwards_is_understood() -> None:
    found = parse_controls({name.encode(): value.encode() for name, value in FORWARDED.items()})
    assert found == Controls(session="s-1", tags={"a": "true", "b": "true"}, end_user="eu-1")
    assert litellm(tags="job:7,env=live, plain").tags == {"job": "7", "env": "live", "plain": "true"}
    assert litellm(customer_id="c-1").end_user == "c-1"
    assert litellm(customer_id="c-1", end_user_id="eu-1").end_user == "eu-1"


def test_the_gateways_own_headers_come_before_those_of_litellm() -> None:
    headers = {b"x-litellm-session-id": b"theirs", b"x-litellm-tags": b"job:theirs,env:live"}
    found = parse_controls({**headers, b"x-thriftgate-session": b"ours", b"x-thriftgate-tags": b"job=ours"})
    assert (found.session, found.tags) == ("ours", {"job": "ours", "env": "live"})


@pytest.mark.parametrize(
    "name", ["team-id", "user-id", "user_api_key_team_id", "user_api_key_hash", "api-key", "model"]
)
def test_no_header_of_litellm_names_a_team_or_key(name: str) -> None:
    assert parse_controls({f"x-litellm-{name}".encode(): b"another-team"}) == Controls()


@pytest.mark.parametrize(
    ("name", "value"),
    [(b"session-id", b"two words"), (b"session-id", b"x" * 257), (b"session-id", b"\xff"), (b"tags", b"\xff"),
     (b"tags", b"a b,,=,:x,\x01"), (b"end-user-id", b"\xe9")],
)  # fmt: skip
def test_what_a_client_of_litellm_wrote_wrongly_refuses_no_request(name: bytes, value: bytes) -> None:
    assert parse_controls({b"x-litellm-" + name: value}) == Controls()


def test_tags_of_litellm_are_bounded() -> None:
    headers = {b"x-litellm-tags": b",".join(b"t%d" % n for n in range(50)), b"x-thriftgate-tags": b"a=1,b=2"}
    assert len(parse_controls(headers).tags) == 16
