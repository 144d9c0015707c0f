"""Forecasts two figures of a call: its output tokens, and the ratio of the backend's count of input tokens to the
gateway's count. Both are learned per team and backend.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from operator import attrgetter

from gateway.domain.money.usage import Usage

FIRST_OUTPUT_TOKENS = 512
FIRST_INPUT_RATIO = 1.25
"""Assumed ratio of the backend's input count to the gateway's count before the first answer. Backends count slightly
more, because of chat templates and other tokenizers."""
_MOST_USUAL_RATIO = 2.0
"""Maximum ratio of the two input counts because of which a call is refused. It is low, because refused calls teach
nothing, so that a ratio that is no longer true would refuse all later calls."""
_TEMPLATE_TOKENS = 24
"""Tokens that a backend's chat template may add to each request, such as the default system prompts of Qwen and Llama
3.1. The gateway's count does not include them."""
MOST_INPUT_RATIO = 4.0
"""Maximum plausible ratio of the two input counts. No tokenizer needs four times as many tokens, so a larger ratio
means that the gateway did not count a part of the input."""
_FIRST_ATTACHED_RATIO = 1.0
"""Assumed ratio for attachments. It is 1, because the gateway counts the maximum for attachments."""
_REMEMBERED = 128
_WEIGHT = 4
"""Weight of the assumed value, as a number of answers. A few long answers raise the quantile at once. About forty short
answers lower it."""
_MOST_RISE = 8
"""Limit for a single long answer. It counts with at most this multiple of the quantile, so that one endless answer does
not count fully."""
_MOST = 10_000


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
        return self._sorted[len(self._sorted) // 2]

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


_UNSEEN = _Quantile(0.95, FIRST_INPUT_RATIO)
_value = attrgetter("value")


def _size(tokens: int) -> int:
    """The size class of an input. Each class reaches up to four times the tokens of the one before."""
    return tokens.bit_length() // 2


class Forecast:
    """The forecast for one team's calls of one backend."""

    __slots__ = ("_output", "_ratios", "_text", "ignored")

    def __init__(self) -> None:
        self._output = _Quantile(0.9, FIRST_OUTPUT_TOKENS)
        self._text: dict[int, _Quantile] = {}
        """Size class → ratio of the input counts for text alone. Short input says little about long input, because a
        backend's own instructions add the same number of tokens to both."""
        self._ratios: dict[str, _Quantile] = {}
        """Kind of content other than text → ratio of the input counts. It is separate, because the tokens of a document
        do not predict those of text."""
        self.ignored = 0
        """Tokens of the longest answer that exceeded the limit of its call. 0 while the backend obeys limits."""

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
        size = self._text.get(_size(counted - attached))
        if size is None or not size.known:  # until this size is known, the highest ratio of any size is assumed
            size = max(self._text.values(), key=_value, default=_UNSEEN)
        text = max(1.0, min(size.value, MOST_INPUT_RATIO))
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
        text, ratio = counted - attached, FIRST_INPUT_RATIO
        size = self._text.get(_size(text))
        if size is not None and size.known:
            ratio = max(ratio, min(size.median, _MOST_USUAL_RATIO))
        return int(text * ratio + attached * _FIRST_ATTACHED_RATIO) + 1 + _TEMPLATE_TOKENS

    def learn_output(self, usage: Usage, answers: int) -> None:
        """Learn the length of answers from a call. `usage`: usage that the backend reported. `answers`: number of
        answers."""
        output, tokens = self._output, usage.all_output / answers
        if tokens > _MOST_RISE * FIRST_OUTPUT_TOKENS:
            tokens = min(tokens, _MOST_RISE * max(output.value, FIRST_OUTPUT_TOKENS))
        output.add(tokens)

    def learn_input(self, counted: int, usage: Usage, kind: str = "text") -> None:
        """Learn the ratio of the input counts from a call. `counted`: the gateway's count. `usage`: usage that the
        backend reported. `kind`: what is attached, such as `image`, or `text` if nothing is."""
        if not counted or not (given := usage.all_input):
            return
        if kind == "text":
            size = self._text.get(_size(counted))
            if size is None:
                size = self._text[_size(counted)] = _Quantile(0.95, FIRST_INPUT_RATIO)
            size.add(given / counted)
            return
        ratio = self._ratios.get(kind)
        if ratio is None:
            ratio = self._ratios[kind] = _Quantile(0.95, _FIRST_ATTACHED_RATIO)
        ratio.add(given / counted)


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
