from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.policy import Policy
from gateway.domain.tenant import Key, Tenant
from gateway.errors import BadRequest, LimitExceeded
from gateway.learning.evidence import Learning
from gateway.learning.feedback import PER_MINUTE, Feedback, parse
from gateway.state.sql.database import Database
from tests.fakes.clock import StoppedClock


def flight(request_id: str, backend: str = "small") -> dict[str, Any]:
    return {"id": request_id, "difficulty": 0.2, "attempts": [{"backend": backend}]}


def tenant(key: str = "k1", team: str = "search") -> Tenant:
    return Tenant(Key(key, team), Policy(team=team))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "Give rating, score or cache"),
        ({"rating": "meh"}, "good or bad"),
        ({"score": 2}, "from 0 to 1"),
        ({"score": True}, "from 0 to 1"),
        ({"cache": "stale"}, "wrong or right"),
        ({"stars": 5}, "unknown key 'stars'"),
    ],
)
def test_a_voice_that_makes_no_sense_is_told_so(body: Any, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        parse(body)


async def test_voices_become_the_quality_of_a_backend(database: Database) -> None:
    feedback = Feedback(database)
    await feedback.rate(tenant(), flight("r1"), parse({"rating": "good"}))
    await feedback.rate(tenant(), flight("r2"), parse({"score": 0.5}))
    await feedback.rate(tenant(team="other"), flight("r3", "large"), parse({"rating": "bad"}))
    await feedback.rate(tenant(), flight("r4"), parse({"cache": "wrong"}))
    assert await feedback.quality("search") == [{"backend": "small", "score": 0.75, "voices": 2}]
    assert len(await feedback.quality()) == 2


async def test_a_key_has_one_voice_per_request(database: Database) -> None:
    feedback = Feedback(database)
    await feedback.rate(tenant(), flight("r1"), parse({"rating": "good"}))
    await feedback.rate(tenant(), flight("r1"), parse({"rating": "bad"}))
    assert await feedback.quality() == [{"backend": "small", "score": 0.0, "voices": 1}]


async def test_a_key_that_says_too_much_is_refused_for_a_while(database: Database) -> None:
    clock = StoppedClock()
    feedback = Feedback(database, clock=clock)
    for number in range(PER_MINUTE):
        await feedback.rate(tenant(), flight(f"r{number}"), parse({"rating": "good"}))
    with pytest.raises(LimitExceeded, match="within a minute") as refused:
        await feedback.rate(tenant(), flight("r"), parse({"rating": "good"}))
    assert refused.value.status == 429
    await feedback.rate(tenant("k2"), flight("r"), parse({"rating": "good"}))
    clock.pass_(61)
    await feedback.rate(tenant(), flight("r"), parse({"rating": "good"}))
    assert feedback.stats() == {"heard": PER_MINUTE + 2, "refused": 1}


async def test_ratings_of_the_same_request_count_to_the_limit(database: Database) -> None:
    clock = StoppedClock()
    feedback = Feedback(database, clock=clock)
    for _ in range(PER_MINUTE):
        await feedback.rate(tenant(), flight("r"), parse({"rating": "good"}))
    with pytest.raises(LimitExceeded, match="within a minute"):
        await feedback.rate(tenant(), flight("r"), parse({"rating": "bad"}))
    clock.pass_(61)
    await feedback.rate(tenant(), flight("r"), parse({"rating": "bad"}))
    assert await feedback.quality() == [{"backend": "small", "score": 0.0, "voices": 1}]


async def test_a_loud_key_does_not_outvote_the_others(database: Database) -> None:
    clock = StoppedClock()
    feedback = Feedback(database, clock=clock)
    for number in range(30):
        await feedback.rate(tenant("loud"), flight(f"r{number}"), parse({"rating": "bad"}))
    for number in range(9):
        await feedback.rate(tenant(f"k{number}"), flight(f"q{number}"), parse({"rating": "good"}))
    (one,) = await feedback.quality("search")
    assert one["score"] > 0.9
    assert one["voices"] == 39


def promised(request_id: str, served: str) -> dict[str, Any]:
    considered = [{"backend": "small", "adequacy": 0.92}, {"backend": "large", "adequacy": None}]
    route = {"reference": "large", "quality": 0.9, "considered": considered}
    return {"id": request_id, "difficulty": 0.2, "attempts": [{"backend": served, "outcome": "ok"}], "route": route}


async def test_voices_teach_about_who_answered_and_about_nobody_elses_team(database: Database) -> None:
    """Many people find the small one's answers bad and the reference's good."""
    feedback, learning = Feedback(database), Learning(database)
    for number in range(40):
        who = tenant(f"k{number}")
        await feedback.rate(who, promised(f"s{number}", "small"), parse({"rating": "bad"}))
        await feedback.rate(who, promised(f"l{number}", "large"), parse({"rating": "good"}))
    await learning.refresh()
    learnt = learning.adjust("search", "small")
    assert learnt.margin > 0.5
    assert learnt.adequacy(0.92) < 0.7
    assert not learning.adjust("search", "large").n
    assert not learning.adjust("other", "small").n


async def test_one_key_alone_moves_little(database: Database) -> None:
    feedback, learning = Feedback(database), Learning(database)
    for number in range(50):
        await feedback.rate(tenant("angry"), promised(f"s{number}", "small"), parse({"rating": "bad"}))
    await learning.refresh()
    learnt = learning.adjust("search", "small")
    assert not learnt.margin
    assert learnt.adequacy(0.92) > 0.88


async def test_the_last_attempt_that_answered_is_judged_and_no_comparison(database: Database) -> None:
    feedback = Feedback(database)
    attempts = [
        {"backend": "small", "outcome": "escalated"},
        {"backend": "large", "outcome": "ok"},
        {"backend": "other", "outcome": "ok", "kind": "shadow"},
    ]
    await feedback.rate(tenant(), {**flight("r"), "attempts": attempts}, parse({"rating": "good"}))
    assert [one["backend"] for one in await feedback.quality()] == ["large"]
