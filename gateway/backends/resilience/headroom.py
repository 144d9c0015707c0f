"""What is left of a provider's rate limits, as its answers report it.

Read are `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` (OpenAI and compatible servers) and
`anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

_HEADER = re.compile(
    rb"x-ratelimit-(?P<what>limit|remaining|reset)-(?P<of>[a-z-]+)"
    rb"|anthropic-ratelimit-(?P<their_of>[a-z-]+)-(?P<their_what>limit|remaining|reset)"
)
_PREFIXES = (b"x-ratelimit-", b"anthropic-ratelimit-")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(ms|s)?)?")
_LONGEST = 40
"""Characters of a value that is read."""
_NEWEST = 0.2
"""Weight of the newest answer in an average."""
_WINDOW_S = 60.0
"""Seconds until a limit is full again if the provider does not say."""


@dataclass(slots=True)
class _Limit:
    """One limit. What is left grows evenly until the limit is full again."""

    most: float
    left: float
    at: float
    full_at: float
    used: float
    """Average use by one call."""

    def left_at(self, now: float) -> float:
        if now >= self.full_at:
            return self.most
        return self.left + (self.most - self.left) * (now - self.at) / (self.full_at - self.at)


class Headroom:
    """The limits of one backend. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._limits: dict[str, _Limit] = {}

    def see(self, headers: Sequence[tuple[bytes, bytes]], now: float, wall: float) -> None:
        """Take over what an answer reports. `wall`: Unix seconds, for resets that are times."""
        told: dict[str, dict[str, str]] = {}
        for name, value in headers:
            if name.startswith(_PREFIXES) and len(value) <= _LONGEST and (found := _HEADER.fullmatch(name)):
                of, what = (found["of"] or found["their_of"]).decode(), (found["what"] or found["their_what"]).decode()
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
        """The part (0..1) that is left of the scarcest limit, with calls in progress counted as used. 0: one more call
        would exceed it. None: nothing was reported."""
        if not self._limits:
            return None
        return min(_share(each, now, in_flight) for each in self._limits.values())


def _share(limit: _Limit, now: float, in_flight: int) -> float:
    left = limit.left_at(now) - in_flight * limit.used
    return max(0.0, left / limit.most) if left >= limit.used and limit.most > 0 else 0.0


def _number(value: str | None) -> float | None:
    return float(value) if value is not None and value.isascii() and value.isdigit() else None


def _seconds(value: str | None, wall: float) -> float | None:
    """Seconds until a reset, which may be a duration (`6m0s`, `120ms`, `2m59.5s`, a number of seconds) or a time."""
    if not value:
        return None
    if (found := _DURATION.fullmatch(value)) is not None:
        hours, minutes, rest, unit = found.groups()
        seconds = float(rest or 0) / (1000 if unit == "ms" else 1)
        return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds
    try:
        return max(0.0, datetime.fromisoformat(value).timestamp() - wall)
    except ValueError:
        return None
