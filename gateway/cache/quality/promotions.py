"""Promotes stored answers. A near miss is a look-up whose best candidate almost was a hit. If the fresh answer to a
near miss equals the stored answer of the candidate, the stored answer is promoted: later questions that are at least as
similar get this answer."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

_REMEMBERED = 16_384
_SCOPES = 2000
_EXPECTED_WRONG, _EXPECTED_CHECKS = 0.3, 10.0
"""Share of promoted hits that is assumed to be wrong before any check, and the number of checks that the assumption
counts as."""
_SHARE = 0.5
"""Share of `max_error`, the allowed share of wrong hits, that promoted hits may use."""
_NEVER = 2.0
"""A score that no candidate can reach."""
_LOOKUPS = 400.0
"""Number of imaginary look-ups that are added to the real look-ups of a scope. So a few early hits are only a small
share of all look-ups."""


@dataclass(slots=True)
class _Scope:
    lookups: int = 0
    hits: int = 0
    checked: int = 0
    wrong: int = 0

    def allowed(self, max_error: float) -> bool:
        """Whether one more promoted hit may be served.

        The condition: wrong promoted hits stay within a fixed part of `max_error`, even if their share is one
        standard deviation above the expected share.
        """
        checks = self.checked + _EXPECTED_CHECKS
        rate = (self.wrong + _EXPECTED_WRONG * _EXPECTED_CHECKS) / checks
        rate += math.sqrt(rate * (1 - rate) / (checks + 1))
        return rate * (self.hits + 1) <= _SHARE * max_error * (self.lookups + _LOOKUPS)


class Promotions:
    """The promoted answers of one worker, in memory. Each promotion belongs to one scope, so no answer reaches another
    tenant."""

    hits = 0
    """Number of promoted answers that were served, in all scopes."""

    def __init__(self) -> None:
        self._least: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        """(Scope, digest of a stored answer) → lowest score at which a fresh answer was equal to this answer. `_NEVER`
        if a fresh answer was different."""
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
        """Whether the promoted answer with this digest is a hit, although `score` is below the threshold of the
        scope."""
        return score >= self._least.get((scope, digest), _NEVER) and self._counts(scope).allowed(max_error)

    def gave(self, scope: str) -> None:
        """Count a promoted answer that was served."""
        self.hits += 1
        self._counts(scope).hits += 1

    def judged(self, scope: str, digests: tuple[bytes, ...], score: float, *, right: bool) -> None:
        """Record the comparison of a near miss with a fresh answer. `right`: whether the fresh answer equals the stored
        answer. `digests`: first the stored answer, then the fresh one.

        If the answers are equal, both become hits for questions with at least `score`. Otherwise their promotions end.

        If the stored answer was already promoted, and only the limit `max_error` made the look-up a miss, the
        comparison counts as a check.
        """
        if score >= self._least.get((scope, digests[0]), _NEVER):
            counts = self._counts(scope)
            counts.checked += 1
            counts.wrong += not right
        for name in ((scope, digest) for digest in digests):
            self._least[name] = min(self._least.get(name, _NEVER), score) if right else _NEVER
            self._least.move_to_end(name)
            if len(self._least) > _REMEMBERED:
                self._least.popitem(last=False)

    def checked(self, scope: str, digest: bytes, *, wrong: bool) -> None:
        """Record the check of a promoted hit, by a fresh answer or by a client's report. `wrong`: whether it was
        wrong."""
        counts = self._counts(scope)
        counts.checked += 1
        counts.wrong += wrong
        if wrong:
            self._least.pop((scope, digest), None)
