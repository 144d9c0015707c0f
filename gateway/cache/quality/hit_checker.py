"""Finds semantic hits whose score is high enough. Compares a share of these hits with fresh answers."""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from gateway.cache.entry import Found, Judged, encode_judged
from gateway.cache.keys import Question, asker, scope
from gateway.cache.quality.answer_judge import Judgement, judge
from gateway.cache.quality.counters import HitCounters
from gateway.cache.quality.promotions import Promotions
from gateway.cache.quality.repeats import Repeats
from gateway.cache.quality.threshold import Thresholds
from gateway.cache.semantic.service import Semantic, SemanticResult
from gateway.cache.store.bodies import Stored
from gateway.dialects.clients import DIALECTS
from gateway.domain.protocols import FreshAnswerSource
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.tenant import Tenant
from gateway.errors import EmbedderUnavailable, StateUnavailable
from gateway.runtime.tasks import Tasks

log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Maximum number of comparisons in progress. While so many are in progress, further hits are not compared."""
_REMEMBERED = 4096
"""Number of recent hits that clients can still report as wrong."""

Recall = Callable[[bytes], Awaitable[Stored | None]]


class SemanticHit(NamedTuple):
    """The best candidate of a look-up that was a miss. Its stored answer is compared with the fresh answer."""

    scope: str
    found: Found
    accepted: bool


@dataclass(frozen=True, slots=True)
class _Given:
    scope: str
    found: Found
    team: str
    key: str


class HitChecker:
    """Selects and checks semantic hits. A failure in this class may lose a check or a hit, but never a request."""

    def __init__(self, semantic: Semantic, trust: Thresholds, recall: Recall) -> None:
        """`trust`: computes the minimum score of a hit.

        `recall(digest)` returns the stored answer, or None if it was deleted. It may raise StateUnavailable.
        """
        self._semantic, self._trust, self._recall = semantic, trust, recall
        self.shadow: FreshAnswerSource | None = None
        """The source of fresh answers. If it is None, only clients' reports show that a hit was wrong."""
        self._repeats = Repeats()
        self._promotions = Promotions()
        self.measures: HitCounters | None = None
        """Counts for each team in the database. If it is None, the counts are only in the memory of the workers."""
        self._given: OrderedDict[str, _Given] = OrderedDict()
        self._tasks = Tasks()
        self._under_way = 0
        self._skipped = 0

    async def aclose(self) -> None:
        await self._tasks.aclose()
        if self.measures is not None:
            await self.measures.aclose()

    async def find(
        self, question: Question, tenant: Tenant, who: str = "", kind: str = ""
    ) -> tuple[SemanticResult, SemanticHit | None]:
        """Call `Semantic.find` with the present minimum score in the scope of `tenant`. Returns the result and, if
        there is no hit, the best candidate.

        `who`: a hash of the API key and the end user. An answer that this asker has already had is not a hit. `kind`:
        the traffic class of the question.
        """
        name, max_error = scope(tenant), tenant.policy.cache.semantic.max_error
        if not self._trust.pays(name, kind):
            return SemanticResult(), None
        look = await self._semantic.find(question, name, max_error, self._trust.bar(name, max_error))
        if look.vector is None:
            return look, None
        self._promotions.looked(name)
        near = look.near if look.found is None and look.accepted else None
        if near is not None and self._promotions.promoted(name, near.digest, near.score, max_error):
            look = look._replace(found=near._replace(promoted=True))
        if look.found is not None and self._repeats.again(who, look.found):
            return look._replace(found=None), None
        best = look.found or (look.near if look.accepted else None)
        hit = look.found is not None
        self._trust.looked(name, best.score if best else None, hit=hit, cpu_s=look.cpu_s, kind=kind)
        if self.measures is not None:
            self.measures.looked(tenant.team, hit=hit)
        if look.found is not None or look.near is None:
            return look, None
        return look, SemanticHit(name, look.near, look.accepted)

    def gave(self, found: Found, stored: Stored, request: CompletionRequest, tenant: Tenant, kind: str = "") -> None:
        """Register that the stored answer of `found` was served as a hit for a question of this traffic class."""
        name = scope(tenant)
        self._repeats.gave(asker(request, tenant), found.digest)
        self._trust.saved(name, stored.cost_pico, kind)
        if found.promoted:
            self._promotions.gave(name)
        self._given[request.id] = _Given(name, found, tenant.team, tenant.key.lineage)
        if len(self._given) > _REMEMBERED:
            self._given.popitem(last=False)
        if self.shadow is None:
            return
        probability = self._trust.draw(name)
        if probability and self._place():
            self._tasks.spawn(self._check(name, found, probability, stored, request, tenant, kind), "cache-check")

    def called_wrong(self, request_id: str, team: str) -> None:
        """Count a wrong hit that a client of `team` has reported. Only the worker that served the hit can count it;
        other workers ignore the report.
        """
        given = self._given.get(request_id)
        if given is None or given.team != team:
            return
        del self._given[request_id]
        self._trust.called_wrong(given.scope, given.found.score, given.key)
        if given.found.promoted:
            self._promotions.checked(given.scope, given.found.digest, wrong=True)
        if self.measures is not None:
            self.measures.called_wrong(team)

    def missed(self, near: SemanticHit, digest: bytes, fresh: bytes, dialect: DialectName) -> None:
        """Compare the `fresh` answer of a miss with the stored answer of `near`. If the answers are equal, both become
        hits for later questions that are as similar. `digest`: the key of `fresh`."""
        if self._place():
            self._tasks.spawn(self._compare(near, digest, fresh, dialect), "cache-near")

    def _place(self) -> bool:
        """Whether one more comparison may begin now. The caller decides this before it knows the answers, so that
        the sample stays random.
        """
        if self._under_way >= _AT_ONCE:
            self._skipped += 1
            return False
        self._under_way += 1
        return True

    async def _check(
        self,
        name: str,
        found: Found,
        probability: float,
        stored: Stored,
        request: CompletionRequest,
        tenant: Tenant,
        kind: str,
    ) -> None:
        try:
            fresh = await self.shadow.ask(request, tenant) if self.shadow else None
            if fresh is None:
                return
            judgement = await self._judge(stored.completion, fresh.completion, request.dialect)
            cost_pico = fresh.cost_pico
            self._trust.checked(name, found.score, judgement, probability=probability, cost_pico=cost_pico, kind=kind)
            if found.promoted and judgement is not Judgement.UNDECIDED:
                self._promotions.checked(name, found.digest, wrong=judgement is Judgement.WRONG)
            if self.measures is not None:
                wrong = None if judgement is Judgement.UNDECIDED else judgement is Judgement.WRONG
                self.measures.checked(tenant.team, wrong=wrong, probability=probability)
        finally:
            self._under_way -= 1

    async def _compare(self, near: SemanticHit, digest: bytes, fresh: bytes, dialect: DialectName) -> None:
        try:
            stored = await self._recall(near.found.digest)
            if stored is not None:
                judgement = await self._judge(stored.completion, fresh, dialect)
                self._trust.missed(near.scope, near.found.score, judgement, accepted=near.accepted)
                if near.accepted and judgement is not Judgement.UNDECIDED:
                    right, digests = judgement is Judgement.RIGHT, (near.found.digest, digest)
                    self._promotions.judged(near.scope, digests, near.found.score, right=right)
        except StateUnavailable:
            return
        finally:
            self._under_way -= 1

    async def _judge(self, stored: bytes, fresh: bytes, dialect: DialectName) -> Judgement:
        try:
            return await judge(text_of(stored, dialect), text_of(fresh, dialect), self._semantic.embed)
        except (EmbedderUnavailable, orjson.JSONDecodeError, LookupError, TypeError) as error:
            log.debug("two answers could not be compared: %r", error)
            return Judgement.UNDECIDED

    async def tell(self, append: Callable[[Mapping[str | bytes, bytes]], Awaitable[object]]) -> None:
        """Report new results to the other workers and to the database. `append`: writes to the index log. Errors
        are ignored.
        """
        if self.measures is not None:
            await self.measures.write()
        if (news := self._trust.news()) is not None:
            with contextlib.suppress(StateUnavailable):
                await append(encode_judged(news))

    def add_report(self, judged: Judged) -> None:
        self._trust.add_report(judged)

    def forget(self) -> None:
        self._trust.forget()

    def report(self) -> list[dict[str, Any]]:
        return self._trust.report()

    def stats(self) -> dict[str, int | float | str]:
        counts = {"comparisons_skipped": self._skipped, "hits_promoted": self._promotions.hits}
        return {**self._trust.stats(), **counts}


def text_of(completion: bytes, dialect: DialectName) -> str:
    """The text of a plain body. Raises JSONDecodeError, LookupError or TypeError if the body has no text."""
    message = DIALECTS[dialect].choices(orjson.loads(completion))[0]["message"]
    content = message["content"]
    if not isinstance(content, str):
        raise TypeError("an answer without text")
    return content
