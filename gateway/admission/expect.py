"""What an answer will take, learned per team and backend from those before it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque

from gateway.domain.usage import Usage

FIRST_OUTPUT_TOKENS = 512
FIRST_INPUT_RATIO = 1.25
"""Backends count a little more than we do: chat templates, another tokenizer."""
_REMEMBERED = 128
_WEIGHT = 4
"""As many answers the first guess counts for: a few long answers lift the quantile at once, some forty lower it."""
_MEAN_SHARE = 0.7
"""The mean of lengths as answers have them (lognormal, sigma about 1) lies at this quantile."""
_MOST = 10_000


class _Quantile:
    """A quantile of the last values."""

    __slots__ = ("_full", "_place", "_recent", "_share", "_sorted", "value")

    def __init__(self, share: float, first: float) -> None:
        self._share, self._place = share, int(share * _REMEMBERED)
        self._full = False
        self._recent: deque[float] = deque([first] * _WEIGHT)
        self._sorted = [first] * _WEIGHT
        self.value = first

    @property
    def known(self) -> bool:
        """Have the guesses become fewer than what was seen?"""
        return len(self._recent) > 2 * _WEIGHT

    def beyond(self, least: float, share: float) -> float | None:
        """A quantile of the values above `least`; None when there are none."""
        ordered = self._sorted
        first = bisect_right(ordered, least)
        return ordered[first + int(share * (len(ordered) - first))] if first < len(ordered) else None

    def add(self, value: float) -> None:
        recent, ordered = self._recent, self._sorted
        recent.append(value)
        insort(ordered, value)
        if self._full:
            del ordered[bisect_left(ordered, recent.popleft())]
            self.value = ordered[self._place]
        else:
            self._full = len(ordered) == _REMEMBERED
            self.value = ordered[int(self._share * len(ordered))]


class Expectation:
    """Of one team's calls of one backend."""

    __slots__ = ("_output", "_ratio")

    def __init__(self) -> None:
        self._output = _Quantile(0.9, FIRST_OUTPUT_TOKENS)
        self._ratio = _Quantile(0.95, FIRST_INPUT_RATIO)

    @property
    def output_tokens(self) -> int:
        """Nine of ten answers are not longer."""
        return int(self._output.value) or 1

    @property
    def known(self) -> bool:
        """Is there experience behind it?"""
        return self._output.known

    def becoming(self, tokens: int = 0) -> int:
        """How long an answer of `tokens` tokens will be in the end, about as likely more as less, weighed by how much;
        half as long again where none was longer."""
        longer = self._output.beyond(tokens, _MEAN_SHARE)
        return int(longer) if longer is not None else tokens * 3 // 2 + 1

    def input_tokens(self, counted: int) -> int:
        """What the backend will count where we counted `counted`."""
        return int(counted * self._ratio.value) + 1

    def learn(self, counted: int, usage: Usage, answers: int) -> None:
        """`usage` as the backend reported it, for `answers` answers to `counted` tokens of input."""
        self._output.add(usage.all_output / answers)
        if counted and (given := usage.all_input):
            self._ratio.add(given / counted)


class Expectations:
    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Expectation] = {}

    def of(self, team: str, backend: str) -> Expectation:
        found = self._known.get((team, backend))
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[team, backend] = Expectation()
        return found
