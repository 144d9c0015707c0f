"""What of a record a client sees in the response's head."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.api.headers import of_error, of_record
from gateway.domain.backend import Backend
from gateway.domain.record import Record
from gateway.errors import LimitExceeded
from tests.fakes.house import tenant

SMALL = Backend(name="small", kind="openai", base_url="http://10.1.2.3/v1", model="tiny-ü", api_key="sk-upstream")


def record(**facts: Any) -> Record:
    return Record("req_1", tenant(), "auto", "openai_chat", False, **facts)


def shown(record: Record) -> dict[str, str]:
    found = of_record(record)
    assert len(dict(found)) == len(found), "a header twice"
    return {name.decode(): value.decode("latin-1") for name, value in found}


def test_what_is_not_known_is_not_shown() -> None:
    assert shown(record()) == {"x-request-id": "req_1", "x-thriftgate-cache": "off"}


def test_everything_that_is_known_is_shown() -> None:
    seen = record(
        cache="miss",
        difficulty=0.12345,
        trimmed_tokens=7,
        escalated=True,
        cost_pico=1_500_001,
        degraded={"state", "embedder"},
        ratelimit={"x-ratelimit-limit-requests": "3"},
    )
    seen.attempt(SMALL).outcome = "ok"
    assert shown(seen) == {
        "x-request-id": "req_1",
        "x-thriftgate-cache": "miss",
        "x-thriftgate-backend": "small",
        "x-thriftgate-model": "tiny-ü",
        "x-thriftgate-difficulty": "0.123",
        "x-thriftgate-trimmed-tokens": "7",
        "x-thriftgate-escalated": "true",
        "x-thriftgate-cost-usd": "0.000001500001",
        "x-thriftgate-degraded": "embedder,state",
        "x-ratelimit-limit-requests": "3",
    }


def test_the_backend_that_served_is_named_not_the_one_that_failed() -> None:
    seen = record()
    seen.attempt(SMALL).outcome = "escalated"
    seen.attempt(SMALL.model_copy(update={"name": "large"})).outcome = "ok"
    assert shown(seen)["x-thriftgate-backend"] == "large"


def test_a_cost_is_a_plain_decimal_however_small() -> None:
    cost = shown(record(cost_pico=1))["x-thriftgate-cost-usd"]
    assert "e" not in cost.lower()
    assert Decimal(cost) == Decimal("1e-12")


def test_neither_address_nor_key_of_a_backend_is_shown() -> None:
    seen = record()
    seen.attempt(SMALL).outcome = "ok"
    assert "10.1.2.3" not in str(shown(seen))
    assert "sk-upstream" not in str(shown(seen))


@pytest.mark.parametrize(
    ("wait_s", "seconds", "milliseconds"),
    [(0.0, "1", "1"), (0.2, "1", "200"), (1.0, "1", "1000"), (1.001, "2", "1001"), (90.5, "91", "90500")],
)
def test_a_wait_is_told_in_whole_seconds_rounded_up_and_in_milliseconds(
    wait_s: float, seconds: str, milliseconds: str
) -> None:
    found = dict(of_error(LimitExceeded("slow down", retry_after_s=wait_s)))
    assert found == {b"retry-after": seconds.encode(), b"retry-after-ms": milliseconds.encode()}


def test_without_a_wait_nothing_is_promised() -> None:
    assert of_error(LimitExceeded("no")) == []
