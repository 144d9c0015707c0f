"""What of a record a client sees in the response's head."""

from __future__ import annotations

import time
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.api.response_headers import of_error, of_record, seconds
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.record import Record
from gateway.errors import (
    AllBackendsFailed,
    BackendFailed,
    BackendRefused,
    BadRequest,
    BudgetExhausted,
    GatewayError,
    LimitExceeded,
    Overloaded,
)
from tests.fakes.gateway import tenant

SMALL = Backend(name="small", kind="openai", base_url="http://10.1.2.3/v1", model="tiny-ü", api_key="sk-upstream")


def record(**facts: Any) -> Record:
    found = Record("req_1", tenant(), "auto", "openai_chat", False)
    for name, value in facts.items():
        setattr(found, name, value)
    return found


def shown(record: Record) -> dict[str, str]:
    found = of_record(record)
    assert len(dict(found)) == len(found), "a header twice"
    return {name.decode(): value.decode("latin-1") for name, value in found}


def test_what_is_not_known_is_not_shown() -> None:
    assert shown(record()) == {"x-request-id": "req_1", "request-id": "req_1", "x-thriftgate-cache": "off"}


def test_what_the_backend_read_from_its_prompt_cache_is_shown_as_soon_as_it_is_known() -> None:
    seen = record()
    attempt = seen.attempt(SMALL)
    assert "x-thriftgate-cached-tokens" not in shown(seen)
    attempt.usage = Usage(10, cached_tokens=900)
    assert shown(seen)["x-thriftgate-cached-tokens"] == "900"


def test_everything_that_is_known_is_shown() -> None:
    seen = record(
        cache="miss",
        difficulty=0.12345,
        trimmed_tokens=7,
        escalated=True,
        cost_pico=1_500_001,
        degraded={"state", "embedder"},
        ratelimit={b"x-ratelimit-limit-requests": b"3"},
    )
    seen.attempt(SMALL).outcome = "ok"
    assert shown(seen) == {
        "x-request-id": "req_1",
        "request-id": "req_1",
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
    assert found == {
        b"x-should-retry": b"true",
        b"retry-after": seconds.encode(),
        b"retry-after-ms": milliseconds.encode(),
    }


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (LimitExceeded("no"), b"true"),
        (BudgetExhausted("no"), b"false"),
        (BadRequest("no"), b"false"),
        (BackendRefused("no", status=422), b"false"),
        (Overloaded("no"), b"true"),
        (AllBackendsFailed([BackendFailed("no")]), b"true"),
    ],
)
def test_without_a_wait_it_is_only_told_whether_to_ask_again(error: GatewayError, again: bytes) -> None:
    assert of_error(error) == [(b"x-should-retry", again)]


def test_of_what_nobody_expected_nothing_is_promised() -> None:
    assert of_error(GatewayError("oops")) == []


LIMITS = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "7",
    "x-ratelimit-reset-requests": "1m30s",
    "x-ratelimit-limit-tokens": "1000",
    "x-ratelimit-remaining-tokens": "0",
    "x-ratelimit-reset-tokens": "120ms",
}


def test_anthropics_clients_find_their_limits_under_anthropics_names() -> None:
    seen = Record("req_1", tenant(), "auto", "anthropic_messages", False)
    seen.ratelimit = {name.encode(): value.encode() for name, value in LIMITS.items()}
    before = time.time()
    headers = shown(seen)
    assert headers["anthropic-ratelimit-requests-limit"] == "60"
    assert headers["anthropic-ratelimit-requests-remaining"] == "7"
    assert headers["anthropic-ratelimit-tokens-limit"] == "1000"
    assert headers["anthropic-ratelimit-tokens-remaining"] == "0"
    resets = [headers[f"anthropic-ratelimit-{of}-reset"] for of in ("requests", "tokens")]
    whole = [datetime.strptime(at, "%Y-%m-%dT%H:%M:%S%z").timestamp() - before for at in resets]
    assert 90 <= whole[0] < 96
    assert 0 <= whole[1] < 6
    assert LIMITS.items() <= headers.items()


def test_openais_clients_do_not() -> None:
    assert not [
        name for name in shown(record(ratelimit={b"x-ratelimit-limit-requests": b"60"})) if name.startswith("anthropic")
    ]


@pytest.mark.parametrize(("text", "said"), [("120ms", 0.12), ("12.5s", 12.5), ("1m0s", 60), ("2m3s", 123)])
def test_a_time_is_read_as_openai_writes_it(text: str, said: float) -> None:
    assert seconds(text) == said


TOLD = [
    (b"openai-processing-ms", b"12"),
    (b"openai-version", b"2020-10-01"),
    (b"openai-organization", b"org-of-the-gateway"),
    (b"openai-project", b"proj_1"),
    (b"x-ratelimit-remaining-requests", b"9"),
    (b"anthropic-ratelimit-tokens-remaining", b"8"),
    (b"anthropic-organization-id", b"org-2"),
    (b"set-cookie", b"__cf_bm=secret"),
    (b"x-request-id", b"req_theirs"),
    (b"content-encoding", b"gzip"),
    (b"connection", b"keep-alive"),
    (b"server", b"cloudflare"),
]


def test_a_backends_own_headers_pass_but_for_whose_account_it_is() -> None:
    seen = record()
    seen.attempt(SMALL).headers = TOLD
    assert shown(seen).items() - shown(record()).items() == {
        ("x-thriftgate-backend", "small"),
        ("x-thriftgate-model", "tiny-ü"),
        ("openai-processing-ms", "12"),
        ("openai-version", "2020-10-01"),
        ("x-ratelimit-remaining-requests", "9"),
        ("anthropic-ratelimit-tokens-remaining", "8"),
    }


def test_a_teams_own_limits_hide_its_backends() -> None:
    seen = record(ratelimit={b"x-ratelimit-limit-requests": b"3"})
    seen.attempt(SMALL).headers = TOLD
    limits = {name for name in shown(seen) if "ratelimit" in name}
    assert limits == {"x-ratelimit-limit-requests"}
