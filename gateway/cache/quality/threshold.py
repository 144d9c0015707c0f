"""The threshold of the verifier for each scope: the minimum score of a hit. The threshold rises until the share of
wrong hits stays below the share that the policy allows."""

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

    # -- before a look-up ------------------------------------------------------------------------------------------

    def pays(self, name: str) -> bool:
        """Whether semantic look-ups in the scope `name` save more than they cost. If they do not, they are paused for
        some time."""
        scope = self._scope(name)
        return scope.rests_until <= self._clock()

    def bar(self, name: str, max_error: float) -> float:
        """The minimum score of a hit in the scope `name`. `LEVELS[0]` means the verifier's own minimum, and inf means
        that there are no hits. `max_error`: the allowed share of wrong hits."""
        scope = self._scope(name)
        bar = scope.bars.get(max_error)
        if bar is None or scope.stale >= _AGAIN_EVERY:
            if scope.stale >= _AGAIN_EVERY:
                scope.bars.clear()
                scope.stale = 0
            bar = scope.bars[max_error] = scope.tally.level(max(max_error, LEAST_ERROR))
        return bar

    # -- after it --------------------------------------------------------------------------------------------------

    def looked(self, name: str, score: float | None, *, hit: bool, cpu_s: float = 0.0) -> None:
        """Count a look-up. `score`: the score of the best candidate that the verifier accepted, even if the score is
        below the threshold; None if no candidate was accepted. `cpu_s`: processor seconds of the look-up."""
        scope = self._scope(name)
        scope.tally.look(score)
        scope.measured.lookups += 1
        scope.measured.hits += hit
        scope.stale += 1
        if not scope.measured.lookups % _REPORTS_PER:
            scope.reports.clear()
        balance = scope.balance
        balance.lookups += 1
        balance.cpu_s += cpu_s
        barred = math.inf in scope.bars.values()
        if balance.lookups >= _WEIGHED * (_PATIENCE if barred else 1):
            self._weigh(scope)

    def saved(self, name: str, saved_pico: int | None) -> None:
        """Count a semantic hit. `saved_pico`: the cost of the stored answer at the backend, in pico-dollars; None if
        the cost is unknown."""
        balance = self._scope(name).balance
        if saved_pico is None:
            balance.unpriced += 1
        else:
            balance.saved_pico += saved_pico

    def _weigh(self, scope: Scope) -> None:
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
        self, name: str, score: float, judgement: Judgement, *, probability: float, cost_pico: int | None = 0
    ) -> None:
        """Count the comparison of a hit with a fresh answer. `probability`: the probability with which the hit was
        selected. `cost_pico`: the cost of the fresh answer in pico-dollars."""
        scope = self._scope(name)
        scope.balance.checks_pico += cost_pico or 0
        if judgement is Judgement.UNDECIDED:
            scope.measured.undecided += 1
            return
        wrong = judgement is Judgement.WRONG
        scope.credit += _AFTER_WRONG * wrong
        self._unreported.append(Check(name, score, wrong, probability))
        scope.measured.check(wrong=wrong, share=probability)
        scope.tally.check(score, wrong=wrong, given=True, share=probability)
        scope.bars.clear()

    def missed(self, name: str, score: float, judgement: Judgement, *, accepted: bool) -> None:
        """Count the comparison of the fresh answer of a miss with the answer of the best candidate. This comparison
        needs no additional call. `accepted`: whether the verifier accepted the candidate, so that only the threshold of
        the scope refused it."""
        scope = self._scope(name)
        scope.near[judgement.value] += 1
        if accepted and judgement is not Judgement.UNDECIDED:
            scope.tally.check(score, wrong=judgement is Judgement.WRONG, given=False, share=1.0)
            scope.bars.clear()

    def called_wrong(self, name: str, score: float, key: str) -> None:
        """Count a wrong hit that a client with the API key `key` has reported. More hits in the scope are checked after
        a report.

        The report counts as one wrong hit. A wrong hit that a check finds counts as more than one, because it stands
        for other hits that were not checked. A report does not stand for other hits, because clients report only wrong
        hits.
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
        return Judged(self._author, totals, checks)

    def add_report(self, judged: Judged) -> None:
        """Add a report that another worker, or an earlier worker, has sent."""
        if judged.author == self._author:
            return
        for name, figures in judged.totals.items():
            scope, known = self._scope(name), (name, judged.author)
            before = self._others.get(known, (0.0,))
            scope.tally.elsewhere(max(0.0, figures[0] - before[0]))
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

    def _in_all(self, name: str) -> Measured:
        """The totals of this worker and of all workers that have reported. `name`: the scope."""
        total = Measured()
        total.add(self._scopes[name].measured.figures)
        for (scope, _), figures in self._others.items():
            if scope == name:
                total.add(figures)
        return total

    # -- reports ---------------------------------------------------------------------------------------------------

    def report(self) -> list[dict[str, Any]]:
        """The figures of each scope, summed over all workers: look-ups, hits, checks, and wrong hits with their
        confidence interval. The thresholds in the result are those of this worker only."""
        now = self._clock()
        return [
            {"scope": name, **_as_object(scope, self._in_all(name)), "rests": scope.rests_until > now}
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
