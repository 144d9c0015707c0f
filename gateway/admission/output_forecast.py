"""Forecasts input ratio and output tokens of a call, learned per team and backend."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from gateway.domain.money.usage import Usage

FIRST_OUTPUT_TOKENS = 512
FIRST_INPUT_RATIO = 1.25
"""Backends count a little more than we do: chat templates, another tokenizer."""
MOST_INPUT_RATIO = 4.0
"""No tokenizer splits text four times as finely; a larger ratio means that something was not counted."""
_FIRST_ATTACHED_RATIO = 1.0
"""What is attached is counted at its most."""
_REMEMBERED = 128
_WEIGHT = 4
"""As many answers the first guess counts for: a few long answers lift the quantile at once, some forty lower it."""
_MOST_RISE = 8
"""Times the quantile that one answer counts for at most: of a single endless one no more than that is remembered."""
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

    def add(self, value: float) -> None:
        recent, ordered = self._recent, self._sorted
        recent.append(value)
        insort(ordered, value)
        if self._full:
            del ordered[bisect_left(ordered, recent.popleft())]
            self.value = ordered[self._place]
        else:
            seen = len(ordered)
            self._full = seen == _REMEMBERED
            self.value = ordered[int(self._share * seen)]


class Forecast:
    """Of one team's calls of one backend."""

    __slots__ = ("_output", "_ratio", "_ratios", "ignored")

    def __init__(self) -> None:
        self._output = _Quantile(0.9, FIRST_OUTPUT_TOKENS)
        self._ratio = _Quantile(0.95, FIRST_INPUT_RATIO)
        """Of text alone."""
        self._ratios: dict[str, _Quantile] = {}
        """By kind of other content: a document's tokens say nothing about those of text."""
        self.ignored = 0
        """Tokens of the longest answer that was longer than its call allowed; 0 while the backend obeys its limits."""

    @property
    def output_tokens(self) -> int:
        """Nine of ten answers are not longer."""
        return int(self._output.value) or 1

    @property
    def known(self) -> bool:
        """Is there experience behind it?"""
        return self._output.known

    def input_tokens(self, counted: int, kind: str = "text", attached: int = 0) -> int:
        """What the backend will count where we counted `counted`, of them `attached` that are no text."""
        # never below what was counted: fields that a backend leaves out say nothing of the next request's text
        text = max(1.0, min(self._ratio.value, MOST_INPUT_RATIO))
        if kind == "text":
            return int(counted * text) + 1
        known = self._ratios.get(kind)
        ratio = _FIRST_ATTACHED_RATIO
        if known is not None:  # the next document may be larger than those before
            ratio = max(ratio, min(known.value, MOST_INPUT_RATIO))
        return int((counted - attached) * max(text, ratio) + attached * ratio) + 1

    def learn(self, counted: int, usage: Usage, answers: int, kind: str = "text") -> None:
        """`usage` as the backend reported it, for `answers` answers to `counted` tokens of input."""
        output, tokens = self._output, usage.all_output / answers
        if tokens > _MOST_RISE * FIRST_OUTPUT_TOKENS:
            tokens = min(tokens, _MOST_RISE * max(output.value, FIRST_OUTPUT_TOKENS))
        output.add(tokens)
        if not counted or not (given := usage.all_input):
            return
        if kind == "text":
            self._ratio.add(given / counted)
            return
        ratio = self._ratios.get(kind)
        if ratio is None:
            ratio = self._ratios[kind] = _Quantile(0.95, _FIRST_ATTACHED_RATIO)
        ratio.add(given / counted)


def least_input_tokens(counted: int, attached: int) -> int:
    """What was counted, without what was learned: a refusal never stands on learned ratios alone."""
    return int((counted - attached) * FIRST_INPUT_RATIO + attached * _FIRST_ATTACHED_RATIO) + 1


class OutputForecasts:
    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Forecast] = {}

    def of(self, team: str, backend: str) -> Forecast:
        found = self._known.get((team, backend))
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[team, backend] = Forecast()
        return found
