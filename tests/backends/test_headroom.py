"""What is left of a provider's rate limits, read from its headers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.backends.resilience.headroom import Headroom

WALL = 1_763_985_600.0  # 2025-11-24T12:00:00Z


def seen(now: float = 0.0, into: Headroom | None = None, **headers: str) -> Headroom:
    found = into or Headroom()
    found.see([(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()], now, WALL)
    return found


def openai(
    now: float = 0.0, into: Headroom | None = None, *, left: int, most: int = 100, reset: str = "1m0s"
) -> Headroom:
    return seen(
        now,
        into,
        x_ratelimit_limit_requests=str(most),
        x_ratelimit_remaining_requests=str(left),
        x_ratelimit_reset_requests=reset,
    )


def test_nothing_is_known_without_headers() -> None:
    assert seen(content_type="text/plain").share(0.0, 3) is None


@pytest.mark.parametrize("reset", ["60s", "1m0s", "1m", "60000ms", "60", "0h1m0s", "60.0s", ""])
def test_what_is_left_grows_until_the_limit_is_full_again(reset: str) -> None:
    room = openai(left=40, reset=reset)
    assert [room.share(now, 0) for now in (0.0, 30.0, 60.0, 90.0)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_anthropics_headers_have_times_and_several_limits() -> None:
    room = seen(
        anthropic_ratelimit_requests_limit="50",
        anthropic_ratelimit_requests_remaining="49",
        anthropic_ratelimit_requests_reset="2025-11-24T12:01:00Z",
        anthropic_ratelimit_input_tokens_limit="1000",
        anthropic_ratelimit_input_tokens_remaining="100",
        anthropic_ratelimit_input_tokens_reset="2025-11-24T12:01:00Z",
    )
    assert room.share(0.0, 0) == pytest.approx(0.1)
    assert room.share(30.0, 0) == pytest.approx(0.55)


def test_calls_in_progress_count_as_used() -> None:
    room = openai(left=10)
    assert room.share(0.0, 4) == pytest.approx(0.06)
    assert room.share(0.0, 9) == pytest.approx(0.01)
    assert room.share(0.0, 10) == 0.0, "one more would exceed it"


def test_the_use_of_a_call_is_learned() -> None:
    room = Headroom()
    for left in range(9000, 2000, -1000):
        seen(0.0, room, x_ratelimit_limit_tokens="10000", x_ratelimit_remaining_tokens=str(left))
    assert room.share(0.0, 0) == pytest.approx(0.3)
    assert room.share(0.0, 4) == 0.0, "four calls of about 700 tokens each leave less than a fifth needs"


def test_without_a_limit_the_most_that_was_ever_left_counts() -> None:
    room = seen(x_ratelimit_remaining_tokens="800")
    seen(1.0, room, x_ratelimit_remaining_tokens="400")
    assert room.share(1.0, 0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "headers",
    [
        {"x_ratelimit_remaining_requests": "many"},
        {"x_ratelimit_remaining_requests": "-1"},
        {"x_ratelimit_remaining_requests": "9" * 50},
        {"x_ratelimit_limit_requests": "5"},
        {"x_ratelimit_left_requests": "5"},
    ],
)
def test_odd_headers_are_ignored(headers: dict[str, str]) -> None:
    assert seen(**headers).share(0.0, 0) is None


@pytest.mark.parametrize("reset", ["soon", "2025-13-45", "1d", "٣s"])
def test_an_odd_reset_counts_as_a_minute(reset: str) -> None:
    assert openai(left=40, reset=reset).share(30.0, 0) == pytest.approx(0.7)


def test_a_limit_of_nothing_is_used_up() -> None:
    assert openai(left=0, most=0).share(0.0, 0) == 0.0


def test_togethers_headers_have_no_limit_in_their_names() -> None:
    room = seen(
        x_ratelimit_limit="100",
        x_ratelimit_remaining="40",
        x_ratelimit_reset="1",
        x_tokenlimit_limit="1000",
        x_tokenlimit_remaining="100",
    )
    assert room.share(0.0, 0) == pytest.approx(0.1)
    assert room.share(60.0, 0) == pytest.approx(1.0)


def test_a_large_reset_is_a_time() -> None:
    reset = datetime(2025, 11, 24, 12, 1, tzinfo=UTC).timestamp()
    for value in (f"{reset:.0f}", f"{reset * 1000:.0f}"):
        room = seen(x_ratelimit_limit="100", x_ratelimit_remaining="40", x_ratelimit_reset=value)
        assert room.share(30.0, 0) == pytest.approx(0.7)
