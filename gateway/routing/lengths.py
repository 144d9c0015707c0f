"""Learns from answers how many output tokens models usually write."""

from __future__ import annotations

from collections import OrderedDict

from gateway.domain.record import Record

PRIOR_TOKENS = 256
"""Expected output tokens before the first answer."""
MEMORY = 20
"""Approximate number of answers that the moving average covers."""
MOST_TOKENS = 131_072
"""Maximum tokens of one answer if neither the backend's limit nor its window is known. No model writes longer answers
today."""
MOST_RISE = 8
"""Limit for a single long answer in the moving average. It counts with at most this multiple of the present mean, so
that one endless answer does not spoil the estimate."""
MOST_KEYS = 4096


class _Mean:
    __slots__ = ("seen", "tokens")

    def __init__(self) -> None:
        self.tokens, self.seen = float(PRIOR_TOKENS), 0


class OutputLengths:
    """Moving averages of output tokens, one for each team and requested model name. If there are too many averages, the
    one that was updated longest ago is deleted."""

    def __init__(self) -> None:
        self._means: OrderedDict[tuple[str, str], _Mean] = OrderedDict()

    def expected(self, team: str, model: str, limit: int | None) -> int:
        """The expected number of output tokens, at most `limit`."""
        known = self._means.get((team, model))
        tokens = PRIOR_TOKENS if known is None else round(known.tokens) or 1
        return tokens if limit is None or tokens < limit else limit

    def learn(self, record: Record) -> None:
        """Update the average with the length of an answer, if the answer is complete."""
        attempt = record.served_by
        if attempt is None or attempt.outcome != "ok" or attempt.usage is None:
            return
        key = (record.tenant.team, record.model)
        mean = self._means.get(key)
        if mean is None:
            mean = self._means[key] = _Mean()
            if len(self._means) > MOST_KEYS:
                self._means.popitem(last=False)
        else:
            self._means.move_to_end(key)
        if mean.seen < MEMORY:
            mean.seen += 1
        taken: float = attempt.usage.all_output
        if taken > PRIOR_TOKENS:
            backend = attempt.backend
            limit = backend.max_output_tokens or backend.window_tokens or MOST_TOKENS
            taken = min(taken, limit, max(mean.tokens, PRIOR_TOKENS) * MOST_RISE)
        mean.tokens += (taken - mean.tokens) / (mean.seen + 1)

    def __len__(self) -> int:
        return len(self._means)
