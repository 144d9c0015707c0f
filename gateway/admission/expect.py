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
_MOST = 10_000


class _Quantile:
    """A quantile of the last values."""

    __slots__ = ("_recent", "_share", "_sorted", "value")

    def __init__(self, share: float, first: float) -> None:
        self._share = share
        self._recent: deque[float] = deque([first] * _WEIGHT)
        self._sorted = [first] * _WEIGHT
        self.value = first

    @property
    def known(self) -> bool:
        """Have the guesses become fewer than what was seen?"""
        return len(self._recent) > 2 * _WEIGHT

    @property
    def most(self) -> float:
        return self._sorted[-1]

    def middle(self, above: float = -1.0) -> float:
        """The median of the values above `above`; `above` itself when there are none."""
        ordered = self._sorted
        first = bisect_right(ordered, above)
        return ordered[(first + len(ordered)) // 2] if first < len(ordered) else above

    def add(self, value: float) -> None:
        recent, ordered = self._recent, self._sorted
        if len(recent) >= _REMEMBERED:
            del ordered[bisect_left(ordered, recent.popleft())]
        recent.append(value)
        insort(ordered, value)
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

    def becoming(self, tokens: int = -1) -> int:
        """Half of the answers that are longer than `tokens` are not longer than this; at least half as much again where
        none was."""
        return max(int(self._output.middle(tokens)), tokens * 3 // 2 if tokens >= self._output.most else 1)

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
