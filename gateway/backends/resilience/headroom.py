"""Estimates how much of a provider's rate limits is unused, from the headers of the provider's answers.

Reads the headers `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` (OpenAI and compatible servers),
`x-ratelimit-{limit,remaining,reset}` and `x-tokenlimit-{limit,remaining,reset}` (Together), and
`anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

_HEADER = re.compile(
    rb"x-ratelimit-(?P<what>limit|remaining|reset)(?:-(?P<of>[a-z-]+))?"
    rb"|x-(?P<tokens>tokenlimit)-(?P<tokens_what>limit|remaining|reset)"
    rb"|anthropic-ratelimit-(?P<their_of>[a-z-]+)-(?P<their_what>limit|remaining|reset)"
)
_PREFIXES = (b"x-ratelimit-", b"x-tokenlimit-", b"anthropic-ratelimit-")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(ms|s)?)?")
_LONGEST = 40
"""Maximum characters of a header value. Longer values are ignored."""
_NEWEST = 0.2
"""Weight of the newest answer in the moving average of the use per call."""
_EPOCH_S = 1e9
"""Seconds above which a number is a Unix time and no duration."""
_WINDOW_S = 60.0
"""Seconds after which a limit is assumed to be unused again, if the provider does not report this time."""


@dataclass(slots=True)
class _Limit:
    """One rate limit. `left` is its unused part, which is assumed to grow evenly until the whole limit is available
    again.
    """

    most: float
    left: float
    at: float
    full_at: float
    used: float
    """Average amount of the limit that one call uses."""

    def left_at(self, now: float) -> float:
        if now >= self.full_at:
            return self.most
        return self.left + (self.most - self.left) * (now - self.at) / (self.full_at - self.at)


class Headroom:
    """The rate limits of one backend. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._limits: dict[str, _Limit] = {}

    def see(self, headers: Sequence[tuple[bytes, bytes]], now: float, wall: float) -> None:
        """Store the limits that an answer reports. `now`: monotonic seconds. `wall`: Unix seconds, which are needed if
        an answer reports a reset as a time of day."""
        reported = [pair for pair in headers if pair[0].startswith(_PREFIXES)]
        if not reported:
            return
        told: dict[str, dict[str, str]] = {}
        for name, value in reported:
            if len(value) <= _LONGEST and (found := _HEADER.fullmatch(name)):
                of = (found["of"] or found["their_of"] or found["tokens"] or b"requests").decode()
                what = (found["what"] or found["their_what"] or found["tokens_what"]).decode()
                told.setdefault(of, {})[what] = value.decode("latin-1").strip()
        for limit, values in told.items():
            self._take(limit, values, now, wall)

    def _take(self, name: str, values: dict[str, str], now: float, wall: float) -> None:
        left, most = _number(values.get("remaining")), _number(values.get("limit"))
        if left is None:
            return
        before = self._limits.get(name)
        if most is None or most < left:
            most = max(left, before.most if before else 0.0)
        reset_s = _seconds(values.get("reset"), wall)
        used = 1.0 if before is None else before.used
        if before is not None and (gone := before.left_at(now) - left) > 0:
            used += (gone - used) * _NEWEST
        self._limits[name] = _Limit(most, left, now, now + (_WINDOW_S if reset_s is None else reset_s), used)

    def share(self, now: float, in_flight: int) -> float | None:
        """The unused part (0 to 1) of the rate limit that is closest to being exceeded. Calls in progress count as
        used.

        0: one more call would exceed a limit. None: no limit was reported.
        """
        if not self._limits:
            return None
        return min(_share(each, now, in_flight) for each in self._limits.values())


def _share(limit: _Limit, now: float, in_flight: int) -> float:
    left = limit.left_at(now) - in_flight * limit.used
    return max(0.0, left / limit.most) if left >= limit.used and limit.most > 0 else 0.0


def _number(value: str | None) -> float | None:
    return float(value) if value is not None and value.isascii() and value.isdigit() else None


def _seconds(value: str | None, wall: float) -> float | None:
    """Seconds until a limit is reset. `value`: a duration (`6m0s`, `120ms`, `2m59.5s`, a number of seconds) or a time.
    None if `value` cannot be read."""
    if not value:
        return None
    if (found := _DURATION.fullmatch(value)) is not None:
        hours, minutes, rest, unit = found.groups()
        seconds = float(rest or 0) / (1000 if unit == "ms" else 1)
        if seconds > _EPOCH_S:  # a Unix time in seconds or, as OpenRouter's, in milliseconds
            seconds = max(0.0, seconds / (1000 if seconds > 100 * _EPOCH_S else 1) - wall)
        return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds
    try:
        return max(0.0, datetime.fromisoformat(value).timestamp() - wall)
    except ValueError:
        return None
