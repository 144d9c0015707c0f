"""How long answers usually are, learned from those that were given."""

from __future__ import annotations

from collections import OrderedDict

from gateway.domain.record import Record

PRIOR_TOKENS = 256
"""Expected output before anything is known."""
MEMORY = 20
"""An average over about this many answers."""
MOST_KEYS = 4096


class OutputLengths:
    """Running means per team and model name as asked for; the least recently used names are forgotten."""

    def __init__(self) -> None:
        self._means: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def expected(self, team: str, model: str, limit: int | None) -> int:
        """Tokens, never above the request's own limit."""
        mean, _ = self._means.get((team, model), (float(PRIOR_TOKENS), 0))
        tokens = max(1, round(mean))
        return tokens if limit is None else min(tokens, limit)

    def learn(self, record: Record) -> None:
        """Take the served answer's length into account, if it came to its end."""
        attempt = record.served_by
        if attempt is None or attempt.outcome != "ok" or attempt.usage is None:
            return
        key = (record.tenant.team, record.model)
        mean, seen = self._means.pop(key, (float(PRIOR_TOKENS), 0))
        seen = min(seen + 1, MEMORY)
        self._means[key] = (mean + (attempt.usage.all_output - mean) / (seen + 1), seen)
        if len(self._means) > MOST_KEYS:
            self._means.popitem(last=False)

    def __len__(self) -> int:
        return len(self._means)
