"""Computes the threshold of the verifier for each scope: the minimum score of a hit.

The threshold rises until the share of wrong hits is below the share that the policy allows.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.cache.entry import Check, Judged
from gateway.cache.quality.answer_judge import Judgement
from gateway.cache.quality.error_bound import LEVELS, Measured, Tally
from gateway.domain.units import PICO_PER_USD

LEAST_ERROR = 0.004
"""The lowest allowed share of wrong hits that can be verified with a reasonable number of checks. If the policy allows
a lower share, the rules of the verifier decide."""
CPU_HOUR_USD = 0.04
"""Assumed price in dollars of one hour of a processor core. It is used to compare the cost of look-ups with their
savings."""

_SCOPES = 2000
_CREDIT = 20.0
"""Number of additional checks in a new scope, so that its error rate is known soon."""
_MOST_CREDIT = 60.0
_DOUBTED = 6.0
"""Factor by which the share of checked hits is increased while the error rate is uncertain and additional checks
remain."""
_AFTER_WRONG = 5.0
"""Number of additional checks after a wrong hit, because there may be more wrong hits."""
_REPORTS = 2
"""Maximum reports of wrong hits that are counted per key within `_REPORTS_PER` look-ups."""
_REPORTS_PER = 4000
"""Number of look-ups after which the counts of reports start again. Further reports of a key only delete the answer,
so that one key cannot disable hits for its scope."""
_KNOWN = 60.0
"""Number of checked hits after which the error rate counts as known. It does not count as known if the threshold has
been raised."""
_AGAIN_EVERY = 128
"""Number of look-ups after which the threshold is computed again, even if there was no new check."""
_WEIGHED = 1000
"""Number of look-ups after which the cost and the savings of look-ups are compared."""
_PATIENCE = 5
"""Factor on `_WEIGHED` for a scope in which the threshold allows no hits. Comparisons after misses may lower this
threshold."""
_REST_S, _LONGEST_REST_S = 900.0, 86_400.0
_OF_KIND = " "
"""Separates the scope and the kind of question in the names of a report's totals. Neither contains a space."""


@dataclass(slots=True)
class Balance:
    """The cost and the savings of semantic look-ups in the current period."""

    lookups: int = 0
    cpu_s: float = 0.0
    checks_pico: int = 0
    saved_pico: int = 0
    unpriced: int = 0
    """Number of hits whose savings are unknown."""

    @property
    def cost_pico(self) -> int:
        return int(self.cpu_s / 3600 * CPU_HOUR_USD * PICO_PER_USD) + self.checks_pico

    @property
    def loses(self) -> bool:
        return not self.unpriced and self.cost_pico > self.saved_pico


@dataclass(slots=True)
class Scope:
    """The statistics of the semantic hits in one scope."""

    tally: Tally = field(default_factory=Tally)
    measured: Measured = field(default_factory=Measured)
    balance: Balance = field(default_factory=Balance)
    near: dict[str, int] = field(default_factory=lambda: {"right": 0, "wrong": 0, "undecided": 0})
    """Results of comparisons with candidates that were not served as hits."""
    credit: float = _CREDIT
    reports: Counter[str] = field(default_factory=Counter)
    """API key → number of its recent reports of wrong hits."""
    bars: dict[float, float] = field(default_factory=dict)
    stale: int = 0
    rests_until: float = float("-inf")
    rest_s: float = _REST_S


@dataclass(slots=True)
class Kind:
    """The statistics of one kind of question in one scope. The kinds are the traffic classes."""

    measured: Measured = field(default_factory=Measured)
    balance: Balance = field(default_factory=Balance)
    rests_until: float = float("-inf")
    rest_s: float = _REST_S


class Thresholds:
    """Computes thresholds from the counts that callers report. Runs on the event loop and takes microseconds."""

    def __init__(
        self,
        *,
        share: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`share`: the share of hits that are checked in the long run. `draw`: returns a random number from 0 to 1."""
        self._share, self._clock, self._draw = share, clock, draw
        self._scopes: OrderedDict[str, Scope] = OrderedDict()
        self._kinds: OrderedDict[tuple[str, str], Kind] = OrderedDict()
        self._switched = 0
        self._author = uuid.uuid4().hex
        self._others: dict[tuple[str, str], tuple[float, ...]] = {}
        """(Scope, worker) → the totals that this worker has reported."""
        self._unreported: list[Check] = []

    def _scope(self, name: str) -> Scope:
        scope = self._scopes.get(name)
        if scope is None:
            scope = self._scopes[name] = Scope()
            if len(self._scopes) > _SCOPES:
                self._scopes.popitem(last=False)
        else:
            self._scopes.move_to_end(name)
        return scope

    def _kind(self, name: str, kind: str) -> Kind:
        found = self._kinds.get((name, kind))
        if found is None:
            found = self._kinds[name, kind] = Kind()
            if len(self._kinds) > _SCOPES:
                self._kinds.popitem(last=False)
        return found

    def _of(self, name: str, kind: str) -> tuple[Scope | Kind, ...]:
        return (self._scope(name), self._kind(name, kind)) if kind else (self._scope(name),)

    # -- before a look-up ------------------------------------------------------------------------------------------

    def pays(self, name: str, kind: str = "") -> bool:
        """Whether semantic look-ups of this kind of question save more than they cost in the scope `name`. If not, they
        are paused for some time. `kind`: the traffic class; empty if unknown."""
        now = self._clock()
        return all(each.rests_until <= now for each in self._of(name, kind))

    def bar(self, name: str, max_error: float) -> float:
        """The minimum score of a hit in the scope `name`; inf: no hits are possible. `max_error`: allowed share of
        wrong hits (0 to 1).

        The result is never below `LEVELS[0]`, the verifier's own minimum.
        """
        scope = self._scope(name)
        bar = scope.bars.get(max_error)
        if bar is None or scope.stale >= _AGAIN_EVERY:
            if scope.stale >= _AGAIN_EVERY:
                scope.bars.clear()
                scope.stale = 0
            bar = scope.bars[max_error] = scope.tally.level(max(max_error, LEAST_ERROR))
        return bar

    # -- after it --------------------------------------------------------------------------------------------------

    def looked(self, name: str, score: float | None, *, hit: bool, cpu_s: float = 0.0, kind: str = "") -> None:
        """Count a look-up. `cpu_s`: processor seconds of the look-up.

        `score`: the score of the best candidate that the verifier accepted, even if it is below the threshold; None
        if no candidate was accepted.
        """
        scope = self._scope(name)
        scope.tally.look(score)
        scope.stale += 1
        patience = _WEIGHED * (_PATIENCE if math.inf in scope.bars.values() else 1)
        for each in self._of(name, kind):
            each.measured.lookups += 1
            each.measured.hits += hit
            each.balance.lookups += 1
            each.balance.cpu_s += cpu_s
            if each.balance.lookups >= patience:
                self._weigh(each)
        if not scope.measured.lookups % _REPORTS_PER:
            scope.reports.clear()

    def saved(self, name: str, saved_pico: int | None, kind: str = "") -> None:
        """Count a semantic hit. `saved_pico`: the cost of the stored answer at the backend, in pico-dollars; None if
        the cost is unknown."""
        for each in self._of(name, kind):
            if saved_pico is None:
                each.balance.unpriced += 1
            else:
                each.balance.saved_pico += saved_pico

    def _weigh(self, scope: Scope | Kind) -> None:
        if scope.balance.loses:
            scope.rests_until = self._clock() + scope.rest_s
            scope.rest_s = min(scope.rest_s * 2, _LONGEST_REST_S)
            self._switched += 1
        else:
            scope.rest_s = _REST_S
        scope.balance = Balance()

    # -- checks ----------------------------------------------------------------------------------------------------

    def draw(self, name: str) -> float:
        """Decide at random whether a hit is checked. Returns the probability with which hits are selected, or 0 if this
        hit is not selected."""
        scope = self._scope(name)
        scope.credit = min(_MOST_CREDIT, scope.credit + self._share)
        if not self._share:
            return 0.0
        doubted = sum(scope.tally.checked) < _KNOWN or any(bar > LEVELS[0] for bar in scope.bars.values())
        probability = min(1.0, self._share * (_DOUBTED if doubted and scope.credit >= 1 else 1.0))
        if self._draw() >= probability:
            return 0.0
        scope.credit -= 1
        return probability

    def checked(
        self,
        name: str,
        score: float,
        judgement: Judgement,
        *,
        probability: float,
        cost_pico: int | None = 0,
        kind: str = "",
    ) -> None:
        """Count the comparison of a hit with a fresh answer. `probability`: the probability with which the hit was
        selected. `cost_pico`: cost of the fresh answer in pico-dollars.
        """
        scope = self._scope(name)
        wrong = judgement is Judgement.WRONG
        for each in self._of(name, kind):
            each.balance.checks_pico += cost_pico or 0
            if judgement is Judgement.UNDECIDED:
                each.measured.undecided += 1
            else:
                each.measured.check(wrong=wrong, share=probability)
        if judgement is Judgement.UNDECIDED:
            return
        scope.credit += _AFTER_WRONG * wrong
        self._unreported.append(Check(name, score, wrong, probability))
        scope.tally.check(score, wrong=wrong, given=True, share=probability)
        scope.bars.clear()

    def missed(self, name: str, score: float, judgement: Judgement, *, accepted: bool) -> None:
        """Count the comparison of a miss's fresh answer with the best candidate's answer. `accepted`: whether the
        verifier accepted the candidate, and only the scope's threshold refused it.
        """
        scope = self._scope(name)
        scope.near[judgement.value] += 1
        if accepted and judgement is not Judgement.UNDECIDED:
            scope.tally.check(score, wrong=judgement is Judgement.WRONG, given=False, share=1.0)
            scope.bars.clear()

    def called_wrong(self, name: str, score: float, key: str) -> None:
        """Count one wrong hit that a client with the API key `key` has reported. After this, more hits in the scope
        are checked.
        """
        scope = self._scope(name)
        if self._counts_report(scope, key):
            scope.credit += _AFTER_WRONG
            self._unreported.append(Check(name, score, True, 1.0, key))
            self._found_wrong(scope, score)

    @staticmethod
    def _counts_report(scope: Scope, key: str) -> bool:
        scope.reports[key] += 1
        return scope.reports[key] <= _REPORTS

    @staticmethod
    def _found_wrong(scope: Scope, score: float) -> None:
        scope.tally.check(score, wrong=True, given=True, share=1.0)
        scope.bars.clear()

    # -- between workers ---------------------------------------------------------------------------------------------

    def news(self) -> Judged | None:
        """The report for the other workers; None if there are no new checks or reports."""
        if not self._unreported:
            return None
        checks, self._unreported = self._unreported, []
        reported = {check.scope for check in checks}
        totals = {name: scope.measured.figures for name, scope in self._scopes.items() if name in reported}
        for (name, kind), found in self._kinds.items():
            if name in reported:
                totals[f"{name}{_OF_KIND}{kind}"] = found.measured.figures
        return Judged(self._author, totals, checks)

    def add_report(self, judged: Judged) -> None:
        """Add a report of another worker. That worker may have ended already."""
        if judged.author == self._author:
            return
        for name, figures in judged.totals.items():
            known = (name, judged.author)
            if _OF_KIND in name:
                scope_name, _, kind = name.partition(_OF_KIND)
                self._kind(scope_name, kind)
            else:
                before = self._others.get(known, (0.0,))
                self._scope(name).tally.elsewhere(max(0.0, figures[0] - before[0]))
            self._others[known] = tuple(figures)
        for check in judged.checks:
            scope = self._scope(check.scope)
            if not check.key:
                scope.tally.check(check.score, wrong=check.wrong, given=True, share=check.probability)
                scope.bars.clear()
            elif self._counts_report(scope, check.key):
                self._found_wrong(scope, check.score)

    def forget(self) -> None:
        """Discard the totals that other workers have reported. The workers report their valid totals again."""
        self._others.clear()

    def _in_all(self, name: str, own: Measured) -> Measured:
        """The totals of all workers: `own`, which this worker measured, plus the totals that other workers reported.
        `name`: the scope, or the scope and the kind of question."""
        total = Measured()
        total.add(own.figures)
        for (scope, _), figures in self._others.items():
            if scope == name:
                total.add(figures)
        return total

    # -- reports ---------------------------------------------------------------------------------------------------

    def report(self) -> list[dict[str, Any]]:
        """Look-ups, hits, checks, and wrong hits with their confidence interval, for each scope and each kind of
        question in it, summed over all workers. The thresholds and the pauses are those of this worker."""
        now = self._clock()
        kinds: dict[str, dict[str, Any]] = {name: {} for name in self._scopes}
        for (name, kind), found in sorted(self._kinds.items()):
            measured = self._in_all(f"{name}{_OF_KIND}{kind}", found.measured).as_object()
            kinds.get(name, {})[kind] = {**measured, "rests": found.rests_until > now}
        return [
            {
                "scope": name,
                **_as_object(scope, self._in_all(name, scope.measured)),
                "rests": scope.rests_until > now,
                "kinds": kinds[name],
            }
            for name, scope in self._scopes.items()
        ]

    def stats(self) -> Mapping[str, int | float | str]:
        """Counts that can be added over several workers. Shares are not included, because they cannot be added."""
        total = Measured()
        for scope in self._scopes.values():
            total.add(scope.measured.figures)
        near = [scope.near for scope in self._scopes.values()]
        low, high = total.interval()
        wrong = (total.of_lookups or 0.0) * total.lookups
        return {
            "hits_checked": total.checked,
            "hits_checked_wrong": total.wrong,
            "hits_checked_undecided": total.undecided,
            "false_hits_estimated": wrong,
            "false_hits_at_least": low * total.lookups,
            "false_hits_at_most": high * total.lookups,
            "near_misses_right": sum(each["right"] for each in near),
            "near_misses_wrong": sum(each["wrong"] for each in near),
            "scopes_barred": sum(
                any(bar > LEVELS[0] for bar in scope.bars.values()) for scope in self._scopes.values()
            ),
            "scopes_switched_off": self._switched,
        }


def _as_object(scope: Scope, measured: Measured) -> dict[str, Any]:
    return {
        **measured.as_object(),
        "near": dict(scope.near),
        "bars": {f"{error:g}": bar if math.isfinite(bar) else None for error, bar in scope.bars.items()},
    }
