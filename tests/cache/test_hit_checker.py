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
from tests.cache.conftest import completion, request, tenant, until
from tests.fakes.embedder import FakeEmbedder

WHO = tenant()
S = scope(WHO)
HIT = Found(b"d", 0.99, 0.95)
QUESTION = Question(b"p", "What is the capital of Peru?")


class Level:
    """A semantic level that finds what it is told to."""

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


class House:
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
    def told(self) -> dict[str, Any]:
        return self.trust.report()[0]


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    made = House()
    yield made
    await made.hit_checker.aclose()


@pytest.mark.parametrize(("answer", "wrong"), [("lima", 0), ("Bogotá, which is no less true of 5 others", 1)])
async def test_a_hit_that_is_drawn_is_compared_with_a_fresh_answer(house: House, answer: str, wrong: int) -> None:
    house.hit_checker.shadow = buyer = Buyer(answer)
    asked = request()
    look, near = await house.hit_checker.find(QUESTION, WHO)
    assert look.found is HIT
    assert near is None
    house.hit_checker.gave(HIT, stored(), asked, WHO)
    await until(lambda: house.told["checked"] == 1)
    assert buyer.asked == [asked]
    assert (house.told["wrong"], house.told["hits"], house.told["lookups"]) == (wrong, 1, 1)


async def test_a_check_that_cannot_be_bought_tells_nothing(house: House) -> None:
    house.hit_checker.shadow = buyer = Buyer(None)
    await house.hit_checker.find(QUESTION, WHO)
    house.hit_checker.gave(HIT, stored(), request(), WHO)
    await until(lambda: len(buyer.asked) == 1)
    assert (house.told["checked"], house.told["undecided"]) == (0, 0)


async def test_hits_found_wrong_bar_the_next_and_misses_then_tell_for_free(house: House) -> None:
    for _ in range(400):
        await house.hit_checker.find(QUESTION, WHO)
    for _ in range(15):
        house.trust.checked(S, HIT.score, Judgement.WRONG, probability=1.0)
    look, near = await house.hit_checker.find(QUESTION, WHO)
    assert look.found is None
    assert near == SemanticHit(S, HIT, True)
    house.hit_checker.missed(near, completion("Lima"), "openai_chat")
    await until(lambda: house.told["near"]["right"] == 1)
    house.known.clear()
    house.hit_checker.missed(near, completion("Lima"), "openai_chat")
    house.down = True
    house.hit_checker.missed(near, completion("Lima"), "openai_chat")
    await asyncio.sleep(0.01)
    assert sum(house.told["near"].values()) == 1, "an answer that is gone, or out of reach, is compared with nothing"


async def test_comparisons_beyond_a_few_at_once_are_left_out(house: House) -> None:
    near = SemanticHit(S, HIT, True)
    for _ in range(20):
        house.hit_checker.missed(near, completion("Lima"), "openai_chat")
    await until(lambda: house.trust.stats()["near_misses_right"] == 4)
    assert house.hit_checker.stats()["comparisons_skipped"] == 16


async def test_a_scope_that_does_not_pay_is_not_looked_up(house: House) -> None:
    for _ in range(1000):
        await house.hit_checker.find(QUESTION, WHO)
    assert await house.hit_checker.find(QUESTION, WHO) == (SemanticResult(), None)
    assert len(house.level.bars) == 1000
    other = tenant("other")
    look, _ = await house.hit_checker.find(QUESTION, other)
    assert look.found is HIT


async def test_what_its_client_calls_wrong_counts_once(house: House) -> None:
    asked = request()
    await house.hit_checker.find(QUESTION, WHO)
    house.hit_checker.gave(HIT, stored(), asked, WHO)
    for _ in range(3):
        house.hit_checker.called_wrong(asked.id, "other")  # nobody else's word counts
        house.hit_checker.called_wrong(asked.id, WHO.team)
    assert house.trust._scopes[S].tally.wrong[level_of(HIT.score)] == 1


async def test_what_is_found_is_written_down_by_team(house: House, database: Database) -> None:
    house.hit_checker.measures, house.hit_checker.shadow = (
        HitCounters(database),
        Buyer("Bogotá, which is no less true of 5 others"),
    )
    asked = request()
    await house.hit_checker.find(QUESTION, WHO)
    house.hit_checker.gave(HIT, stored(), asked, WHO)
    await until(lambda: house.told["checked"] == 1)
    house.hit_checker.called_wrong(asked.id, WHO.team)
    await house.hit_checker.aclose()
    told = await database.run(read)
    assert {team: one.as_object()["wrong"] for team, one in told.items()} == {WHO.team: 1}
    assert told[WHO.team].called_wrong == 1


async def test_bodies_that_say_nothing_are_not_judged(house: House) -> None:
    house.hit_checker.shadow = Buyer("Lima")
    await house.hit_checker.find(QUESTION, WHO)
    house.hit_checker.gave(HIT, Stored(b"{}", Usage(1), 1, "b", "m"), request(), WHO)
    await until(lambda: house.told["undecided"] == 1)
