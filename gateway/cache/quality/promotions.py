"""Answers that a near miss has confirmed: the next question that is as close gets them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

_REMEMBERED = 16_384
_SCOPES = 2000
_EXPECTED_WRONG, _EXPECTED_CHECKS = 0.3, 10.0
"""Share of promoted hits that is expected to be wrong before any check, and the number of checks it counts as."""
_SHARE = 0.5
"""Part of `max_error` that promoted hits may take."""
_NEVER = 2.0
"""A score that none reaches."""
_LOOKUPS = 400.0
"""Look-ups that a scope begins with, so that a few early hits are a small share."""


@dataclass(slots=True)
class _Scope:
    lookups: int = 0
    hits: int = 0
    checked: int = 0
    wrong: int = 0

    def allowed(self, max_error: float) -> bool:
        """Whether one more promoted hit keeps the expected wrong ones within their part of `max_error`."""
        rate = (self.wrong + _EXPECTED_WRONG * _EXPECTED_CHECKS) / (self.checked + _EXPECTED_CHECKS)
        return rate * (self.hits + 1) <= _SHARE * max_error * (self.lookups + _LOOKUPS)


class Promotions:
    """Per worker, in memory. An answer belongs to one scope, so nothing passes between tenants."""

    hits = 0
    """Promoted answers served, in all scopes."""

    def __init__(self) -> None:
        self._least: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        """(Scope, digest) → lowest score at which a fresh answer equalled this one; `_NEVER` after a different one."""
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()

    def _counts(self, scope: str) -> _Scope:
        counts = self._scopes.get(scope)
        if counts is None:
            counts = self._scopes[scope] = _Scope()
            if len(self._scopes) > _SCOPES:
                self._scopes.popitem(last=False)
        return counts

    def looked(self, scope: str) -> None:
        self._counts(scope).lookups += 1

    def promoted(self, scope: str, digest: bytes, score: float, max_error: float) -> bool:
        """Whether the answer is a hit although the scope's threshold is above `score`."""
        return score >= self._least.get((scope, digest), _NEVER) and self._counts(scope).allowed(max_error)

    def gave(self, scope: str) -> None:
        """A promoted answer was served."""
        self.hits += 1
        self._counts(scope).hits += 1

    def judged(self, scope: str, digests: tuple[bytes, ...], score: float, *, right: bool) -> None:
        """A near miss of this score was compared with a fresh answer. A wrong one ends the promotion."""
        for name in ((scope, digest) for digest in digests):
            self._least[name] = min(self._least.get(name, _NEVER), score) if right else _NEVER
            self._least.move_to_end(name)
            if len(self._least) > _REMEMBERED:
                self._least.popitem(last=False)

    def checked(self, scope: str, digest: bytes, *, wrong: bool) -> None:
        """A promoted hit was compared with a fresh answer, or its client reported it as wrong."""
        counts = self._counts(scope)
        counts.checked += 1
        counts.wrong += wrong
        if wrong:
            self._least.pop((scope, digest), None)
