"""How fast a backend generates what nobody sees: reasoning before the text, and plain answers until they are whole."""

from __future__ import annotations

_WEIGHT = 0.2
"""Of a new rate in the running mean."""


class Silence:
    """Of one backend that can reason, in one worker. Says what an answer that ended early has taken unseen."""

    __slots__ = ("tokens_per_second",)

    def __init__(self) -> None:
        self.tokens_per_second = 0.0
        """0 until it is known: then nothing is charged for silence."""

    def learn(self, tokens: int, seconds: float) -> None:
        """A whole answer had `tokens` that were not seen when they were generated, in `seconds`."""
        if tokens <= 0 or seconds <= 0:
            return
        rate = tokens / seconds
        known = self.tokens_per_second
        self.tokens_per_second = known + _WEIGHT * (rate - known) if known else rate

    def tokens(self, seconds: float) -> int:
        """Expected after so long a silence."""
        return int(self.tokens_per_second * max(seconds, 0.0))
