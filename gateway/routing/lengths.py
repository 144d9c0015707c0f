"""Output lengths of models, learned from their answers."""

from __future__ import annotations

from collections import OrderedDict

from gateway.domain.record import Record

PRIOR_TOKENS = 256
"""Expected output before anything is known."""
MEMORY = 20
"""An average over about this many answers."""
MOST_TOKENS = 131_072
"""Of one answer, where neither the backend's limit nor its window is known: no model writes more today."""
MOST_RISE = 8
"""Times the mean that one answer counts for at most: a single endless one must not make all that follow dear."""
MOST_KEYS = 4096


class _Mean:
    __slots__ = ("seen", "tokens")

    def __init__(self) -> None:
        self.tokens, self.seen = float(PRIOR_TOKENS), 0


class OutputLengths:
    """Running means per team and model name as asked for; the least recently used names are forgotten."""

    def __init__(self) -> None:
        self._means: OrderedDict[tuple[str, str], _Mean] = OrderedDict()

    def expected(self, team: str, model: str, limit: int | None) -> int:
        """Tokens, never above the request's own limit."""
        known = self._means.get((team, model))
        tokens = PRIOR_TOKENS if known is None else round(known.tokens) or 1
        return tokens if limit is None or tokens < limit else limit

    def learn(self, record: Record) -> None:
        """Take the served answer's length into account, if it came to its end."""
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
