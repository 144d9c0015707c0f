from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gateway.cache.entry import Found
from gateway.cache.keys import Question, scope
from gateway.cache.quality.answer_judge import Judgement
from gateway.cache.quality.counters import HitCounters, read
from gateway.cache.quality.error_bound import level_of
from gateway.cache.quality.hit_checker import HitChecker, SemanticHit
from gateway.cache.quality.threshold import Thresholds
from gateway.cache.semantic.service import SemanticResult
from gateway.cache.store.bodies import Stored
from gateway.domain.money.usage import Usage
from gateway.domain.protocols import FreshAnswer
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.errors import StateUnavailable
from gateway.state.sql.database import Database
from tests.cache.conftest import completion, request, tenant
from tests.fakes.embedder import FakeEmbedder
from tests.support.waiting import until

WHO = tenant()
S = scope(WHO)
HIT = Found(b"d", 0.99, 0.95)
QUESTION = Question(b"p", "What is the capital of Peru?")


class Level:
    """A semantic level that finds what it is report to."""

    def __init__(self) -> None:
        self.bars: list[float] = []
        self.found: Found | None = HIT
        self.embedder = FakeEmbedder()

    async def find(self, question: Question, owner: str, max_error: float, bar: float) -> SemanticResult:
        self.bars.append(bar)
        vector = await self.embedder.embed(question.text)
        if self.found is not None and self.found.score >= bar:
            return SemanticResult(vector, self.found, cpu_s=0.001)
        return SemanticResult(vector, None, self.found, self.found is not None, 0.001)

    async def embed(self, text: str) -> Any:
        return await self.embedder.embed(text)


class Buyer:
    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.asked: list[CompletionRequest] = []

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> FreshAnswer | None:
        self.asked.append(request)
        return None if self.answer is None else FreshAnswer(completion(self.answer), 500)


def stored(text: str = "Lima.") -> Stored:
    return Stored(completion(text), Usage(9, output_tokens=2), 700, "small", "tiny")


class Checked:
    def __init__(self) -> None:
        self.level, self.trust = Level(), Thresholds(share=1.0, draw=lambda: 0.0)
        self.known: dict[bytes, Stored] = {b"d": stored()}
        self.down = False
        self.hit_checker = HitChecker(self.level, self.trust, self.recall)  # type: ignore[arg-type]

    async def recall(self, digest: bytes) -> Stored | None:
        if self.down:
            raise StateUnavailable("down")
        return self.known.get(digest)

    @property
    def report(self) -> dict[str, Any]:
        return self.trust.report()[0]


@pytest_asyncio.fixture
async def checked() -> AsyncIterator[Checked]:
    made = Checked()
    yield made
    await made.hit_checker.aclose()


@pytest.mark.parametrize(("answer", "wrong"), [("lima", 0), ("Bogotá, which is no less true of 5 others", 1)])
async def test_a_hit_that_is_drawn_is_compared_with_a_fresh_answer(checked: Checked, answer: str, wrong: int) -> None:
    checked.hit_checker.shadow = buyer = Buyer(answer)
    asked = request()
    look, near = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found is HIT
    assert near is None
    checked.hit_checker.gave(HIT, stored(), asked, WHO)
    await until(lambda: checked.report["checked"] == 1)
    assert buyer.asked == [asked]
    assert (checked.report["wrong"], checked.report["hits"], checked.report["lookups"]) == (wrong, 1, 1)


async def test_a_check_that_cannot_be_bought_tells_nothing(checked: Checked) -> None:
    checked.hit_checker.shadow = buyer = Buyer(None)
    await checked.hit_checker.find(QUESTION, WHO)
    checked.hit_checker.gave(HIT, stored(), request(), WHO)
    await until(lambda: len(buyer.asked) == 1)
    assert (checked.report["checked"], checked.report["undecided"]) == (0, 0)


async def test_hits_found_wrong_bar_the_next_and_misses_then_tell_for_free(checked: Checked) -> None:
    for _ in range(400):
        await checked.hit_checker.find(QUESTION, WHO)
    for _ in range(15):
        checked.trust.checked(S, HIT.score, Judgement.WRONG, probability=1.0)
    look, near = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found is None
    assert near == SemanticHit(S, HIT, True)
    checked.hit_checker.missed(near, b"new", completion("Lima"), "openai_chat")
    await until(lambda: checked.report["near"]["right"] == 1)
    checked.known.clear()
    checked.hit_checker.missed(near, b"new", completion("Lima"), "openai_chat")
    checked.down = True
    checked.hit_checker.missed(near, b"new", completion("Lima"), "openai_chat")
    await asyncio.sleep(0.01)
    assert sum(checked.report["near"].values()) == 1, (
        "an answer that is gone, or out of reach, is compared with nothing"
    )


async def test_comparisons_beyond_a_few_at_once_are_left_out(checked: Checked) -> None:
    near = SemanticHit(S, HIT, True)
    for _ in range(20):
        checked.hit_checker.missed(near, b"new", completion("Lima"), "openai_chat")
    await until(lambda: checked.trust.stats()["near_misses_right"] == 4)
    assert checked.hit_checker.stats()["comparisons_skipped"] == 16


async def test_a_scope_that_does_not_pay_is_not_looked_up(checked: Checked) -> None:
    for _ in range(1000):
        await checked.hit_checker.find(QUESTION, WHO)
    assert await checked.hit_checker.find(QUESTION, WHO) == (SemanticResult(), None)
    assert len(checked.level.bars) == 1000
    other = tenant("other")
    look, _ = await checked.hit_checker.find(QUESTION, other)
    assert look.found is HIT


async def test_look_ups_hits_and_checks_are_counted_by_kind_of_question(checked: Checked) -> None:
    checked.hit_checker.shadow = Buyer("Bogotá, which is no less true of 5 others")
    await checked.hit_checker.find(QUESTION, WHO, kind="en/text/opening")
    checked.hit_checker.gave(HIT, stored(), request(), WHO, "en/text/opening")
    await until(lambda: checked.report["checked"] == 1)
    (kind,) = checked.report["kinds"].items()
    assert (kind[0], kind[1]["lookups"], kind[1]["hits"], kind[1]["wrong"]) == ("en/text/opening", 1, 1, 1)


async def test_what_its_client_calls_wrong_counts_once(checked: Checked) -> None:
    asked = request()
    await checked.hit_checker.find(QUESTION, WHO)
    checked.hit_checker.gave(HIT, stored(), asked, WHO)
    for _ in range(3):
        checked.hit_checker.called_wrong(asked.id, "other")  # nobody else's word counts
        checked.hit_checker.called_wrong(asked.id, WHO.team)
    assert checked.trust._scopes[S].tally.wrong[level_of(HIT.score)] == 1


async def test_what_is_found_is_written_down_by_team(checked: Checked, database: Database) -> None:
    checked.hit_checker.measures, checked.hit_checker.shadow = (
        HitCounters(database),
        Buyer("Bogotá, which is no less true of 5 others"),
    )
    asked = request()
    await checked.hit_checker.find(QUESTION, WHO)
    checked.hit_checker.gave(HIT, stored(), asked, WHO)
    await until(lambda: checked.report["checked"] == 1)
    checked.hit_checker.called_wrong(asked.id, WHO.team)
    await checked.hit_checker.aclose()
    report = await database.run(read)
    assert {team: one.as_object()["wrong"] for team, one in report.items()} == {WHO.team: 1}
    assert report[WHO.team].called_wrong == 1


async def test_bodies_that_say_nothing_are_not_judged(checked: Checked) -> None:
    checked.hit_checker.shadow = Buyer("Lima")
    await checked.hit_checker.find(QUESTION, WHO)
    checked.hit_checker.gave(HIT, Stored(b"{}", Usage(1), 1, "b", "m"), request(), WHO)
    await until(lambda: checked.report["undecided"] == 1)


CLOSE = Found(b"d", 0.6, 0.9)
"""Too uncertain for a new scope."""


async def promote(checked: Checked) -> None:
    """Let a near miss find that the answer of `CLOSE` equals its own."""
    checked.level.found = CLOSE
    look, near = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found is None
    assert near is not None
    checked.hit_checker.missed(near, b"new", completion("Lima"), "openai_chat")
    await until(lambda: checked.report["near"]["right"] == 1)


async def test_an_answer_that_a_near_miss_confirmed_answers_the_next_time(checked: Checked) -> None:
    await promote(checked)
    look, near = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found == CLOSE._replace(promoted=True)
    assert near is None
    checked.level.found = Found(b"new", 0.7, 0.9)
    look, _ = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found is not None, "the answer of the near miss is confirmed too"
    checked.level.found = CLOSE._replace(score=0.5)
    look, _ = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found is None, "it was not confirmed for questions that are less close"


async def test_an_answer_is_promoted_for_its_own_tenant_only(checked: Checked) -> None:
    await promote(checked)
    look, _ = await checked.hit_checker.find(QUESTION, tenant("other"))
    assert look.found is None


async def test_a_promoted_hit_that_is_wrong_ends_the_promotion(checked: Checked) -> None:
    await promote(checked)
    look, _ = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found is not None
    checked.hit_checker.shadow = Buyer("Bogotá, which is no less true of 5 others")
    checked.hit_checker.gave(look.found, stored(), request(), WHO)
    await until(lambda: checked.report["wrong"] == 1)
    look, _ = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found is None
    assert checked.hit_checker.stats()["hits_promoted"] == 1


async def test_a_promoted_hit_that_its_client_reports_ends_the_promotion(checked: Checked) -> None:
    await promote(checked)
    asked = request()
    checked.hit_checker.gave(CLOSE._replace(promoted=True), stored(), asked, WHO)
    checked.hit_checker.called_wrong(asked.id, WHO.team)
    look, _ = await checked.hit_checker.find(QUESTION, WHO)
    assert look.found is None
