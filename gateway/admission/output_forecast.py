"""Forecasts two figures of a call: its output tokens, and the ratio of the backend's count of input tokens to the
gateway's count. Both are learned per team and backend.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from itertools import islice

from gateway.domain.money.usage import Usage

FIRST_OUTPUT_TOKENS = 512
FIRST_INPUT_RATIO = 1.25
"""Assumed ratio of the backend's input count to the gateway's count before the first answer. Backends count slightly
more, because of chat templates and other tokenizers."""
_TEMPLATE_TOKENS = 24
"""Tokens that a backend's chat template may add to each request, such as the default system prompts of Qwen and Llama
3.1. The gateway's count does not include them."""
_SHORT_TOKENS = 256
"""Input below this number of tokens counts as short. Its ratio says little about longer input, because a chat template
adds the same tokens to both."""
MOST_INPUT_RATIO = 4.0
"""Maximum plausible ratio of the two input counts. No tokenizer needs four times as many tokens, so a larger ratio
means that the gateway did not count a part of the input."""
_FIRST_ATTACHED_RATIO = 1.0
"""Assumed ratio for attachments. It is 1, because the gateway counts the maximum for attachments."""
_REMEMBERED = 128
_LATEST = 15
"""Number of the latest values of which a median is the middle one. With so few, a ratio that was usual only for a while
is soon forgotten."""
_TRIAL_S = 60.0
"""Minimum seconds between two calls that are sent although the usual ratio of their input would refuse them. The first
refusal counts as such a call."""
_HALVED_S = 900.0
"""Seconds after which half as many tokens as before are held for because of an answer that exceeded its limit."""
_WEIGHT = 4
"""Weight of the assumed value, as a number of answers. A few long answers raise the quantile at once. About forty short
answers lower it."""
_MOST_RISE = 8
"""Limit for a single long answer. It counts with at most this multiple of the quantile, so that one endless answer does
not count fully."""
_MOST = 10_000
SLACK_TOKENS = 16
"""Number of tokens by which an answer may exceed its limit, at least, before it counts as longer."""
_REPORTED_SHARE = 16
"""The backend's own count of tokens may exceed the cap by 1/`_REPORTED_SHARE` of the cap, because some backends count
the token that ends an answer."""


class _Quantile:
    """An estimate of a quantile, which is updated with each observed value."""

    __slots__ = ("_full", "_place", "_recent", "_share", "_sorted", "value")

    def __init__(self, share: float, first: float) -> None:
        self._share, self._place = share, int(share * _REMEMBERED)
        self._full = False
        self._recent: deque[float] = deque([first] * _WEIGHT)
        self._sorted = [first] * _WEIGHT
        self.value = first

    @property
    def known(self) -> bool:
        """Whether the observed values weigh more than the initial assumption."""
        return len(self._recent) > 2 * _WEIGHT

    @property
    def median(self) -> float:
        """The median of the latest values."""
        latest = sorted(islice(reversed(self._recent), _LATEST))
        return latest[len(latest) // 2]

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
    """The forecast for one team's calls of one backend."""

    __slots__ = ("_clock", "_ignored_at", "_long", "_output", "_ratios", "_short", "_tried_at", "_tried_by", "ignored")

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tried_at: float | None = None
        """Time of the latest trial, or of the first refusal."""
        self._tried_by = ""
        self._output = _Quantile(0.9, FIRST_OUTPUT_TOKENS)
        self._short, self._long = _Quantile(0.95, FIRST_INPUT_RATIO), _Quantile(0.95, FIRST_INPUT_RATIO)
        """Ratios of the input counts for text alone, of short and of long input."""
        self._ratios: dict[str, _Quantile] = {}
        """Kind of content other than text → ratio of the input counts. It is separate, because the tokens of a document
        do not predict those of text."""
        self.ignored = 0
        """Tokens of the longest answer that exceeded the limit of its call, before `longest_ignored` reduces them. 0
        while the backend obeys limits."""
        self._ignored_at = 0.0

    @property
    def output_tokens(self) -> int:
        """A number of output tokens that nine of ten answers do not exceed."""
        return int(self._output.value) or 1

    @property
    def known(self) -> bool:
        """Whether the forecast is based on observations."""
        return self._output.known

    def input_tokens(self, counted: int, kind: str = "text", attached: int = 0) -> int:
        """The input tokens that the backend is expected to count. `counted`: the gateway's own count. `kind`: what is
        attached, such as `image`, or `text` if nothing is. `attached`: the part of `counted` that is not text."""
        # never below the gateway's count: a field that the backend ignored may count next time
        text = max(1.0, min(max(self._short.value, self._long.value), MOST_INPUT_RATIO))
        if kind == "text":
            return int(counted * text) + 1 + _TEMPLATE_TOKENS
        known = self._ratios.get(kind)
        ratio = _FIRST_ATTACHED_RATIO
        if known is not None:  # the next document may be larger than earlier documents
            ratio = max(ratio, min(known.value, MOST_INPUT_RATIO))
        return int((counted - attached) * max(text, ratio) + attached * ratio) + 1 + _TEMPLATE_TOKENS

    def usual_input_tokens(self, counted: int, attached: int) -> int:
        """The input tokens that the backend usually counts, which is the median instead of a high quantile.

        Refusals use this number, so that a few unusual calls never cause a refusal. `counted`: the gateway's own count.
        `attached`: the part of `counted` that belongs to attachments.
        """
        ratios = self._short if counted - attached < _SHORT_TOKENS else self._long
        return _input_tokens(counted, attached, max(FIRST_INPUT_RATIO, min(ratios.median, MOST_INPUT_RATIO)))

    def begin_trial(self, request_id: str) -> bool:
        """Whether the request may be sent now although the usual ratio of its input would refuse it. The answer to such
        a call shows whether the ratio still holds. Several limits of a request may ask. If the result is True and the
        call is not sent, call `end_trial`."""
        now, tried_at = self._clock(), self._tried_at
        due = tried_at is not None and not 0 <= now - tried_at < _TRIAL_S  # the clock may be set back
        if due:
            self._tried_by = request_id
        if due or tried_at is None:
            self._tried_at = now
        return self._tried_by == request_id

    def end_trial(self) -> None:
        """Let another call have the trial that was begun last."""
        self._tried_at, self._tried_by = float("-inf"), ""

    def longest_ignored(self) -> int:
        """Reduce `ignored` by the time that has passed, and return it. Otherwise, one answer would refuse all later
        calls that a small budget does not pay for, and refused calls teach nothing."""
        now = self._clock()
        halvings = int((now - self._ignored_at) // _HALVED_S)
        if halvings:
            self.ignored >>= min(max(0, halvings), 64)
            self._ignored_at = now
        return self.ignored

    def learn_obedience(self, output: int, limit: int) -> None:
        """Learn whether the backend obeys limits. `output`: tokens of an answer. `limit`: its limit."""
        if output > limit and output > limit + limit // _REPORTED_SHARE + SLACK_TOKENS:
            self.ignored, self._ignored_at = max(self.ignored, output), self._clock()
        elif self.ignored:  # reduced with every answer within its limit, and 0 after some dozen of them
            self.ignored = self.ignored * 3 // 4

    def learn(self, counted: int, usage: Usage, answers: int, kind: str = "text") -> None:
        """Learn from a call. `usage`: usage that the backend reported. `answers`: number of answers. `counted`: the
        gateway's count of the input tokens. `kind`: what is attached, such as `image`, or `text` if nothing is."""
        output, tokens = self._output, usage.all_output / answers
        if tokens > _MOST_RISE * FIRST_OUTPUT_TOKENS:
            tokens = min(tokens, _MOST_RISE * max(output.value, FIRST_OUTPUT_TOKENS))
        output.add(tokens)
        self.learn_input(counted, usage, kind)

    def learn_input(self, counted: int, usage: Usage, kind: str) -> None:
        """Learn from a call whose answer was ended by its cap, so that its length shows nothing."""
        if not counted or not (given := usage.all_input):
            return
        if kind == "text":
            (self._short if counted < _SHORT_TOKENS else self._long).add(given / counted)
            return
        ratio = self._ratios.get(kind)
        if ratio is None:
            ratio = self._ratios[kind] = _Quantile(0.95, _FIRST_ATTACHED_RATIO)
        ratio.add(given / counted)


def first_input_tokens(counted: int, attached: int) -> int:
    """The input tokens that a backend is assumed to count before its first answer. The parameters are those of
    `Forecast.usual_input_tokens`."""
    return _input_tokens(counted, attached, FIRST_INPUT_RATIO)


def _input_tokens(counted: int, attached: int, ratio: float) -> int:
    return int((counted - attached) * ratio + attached * _FIRST_ATTACHED_RATIO) + 1 + _TEMPLATE_TOKENS


class OutputForecasts:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], Forecast] = {}

    def of(self, team: str, backend: str) -> Forecast:
        found = self._known.get((team, backend))
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[team, backend] = Forecast(self._clock)
        return found
