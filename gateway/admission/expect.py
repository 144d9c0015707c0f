"""What an answer will take, learned per team and backend from those before it."""

from __future__ import annotations

from bisect import bisect_left, insort
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

    def __init__(self, share: float, first: float) -> None:
        self._share = share
        self._recent: deque[float] = deque([first] * _WEIGHT)
        self._sorted = [first] * _WEIGHT

    @property
    def value(self) -> float:
        return self._sorted[int(self._share * len(self._sorted))]

    def add(self, value: float) -> None:
        if len(self._recent) >= _REMEMBERED:
            oldest = self._recent.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
        self._recent.append(value)
        insort(self._sorted, value)


class Expectations:
    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[_Quantile, _Quantile]] = {}

    def _of(self, team: str, backend: str) -> tuple[_Quantile, _Quantile]:
        found = self._known.get((team, backend))
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = _Quantile(0.9, FIRST_OUTPUT_TOKENS), _Quantile(0.95, FIRST_INPUT_RATIO)
            self._known[team, backend] = found
        return found

    def output_tokens(self, team: str, backend: str) -> int:
        """Nine of ten answers are not longer."""
        return max(1, int(self._of(team, backend)[0].value))

    def input_tokens(self, team: str, backend: str, counted: int) -> int:
        """What the backend will count where we counted `counted`."""
        return int(counted * self._of(team, backend)[1].value) + 1

    def learn(self, team: str, backend: str, counted: int, usage: Usage, answers: int) -> None:
        """`usage` as the backend reported it, for `answers` answers to `counted` tokens of input."""
        output, ratio = self._of(team, backend)
        output.add(usage.all_output / answers)
        if counted and usage.all_input:
            ratio.add(usage.all_input / counted)
