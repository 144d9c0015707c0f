from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.policy import Policy
from gateway.domain.tenant import Key, Tenant
from gateway.errors import BadRequest
from gateway.state.sql import Database
from gateway.trials.feedback import Feedback, parse


def flight(request_id: str, backend: str = "small") -> dict[str, Any]:
    return {"id": request_id, "difficulty": 0.2, "attempts": [{"backend": backend}]}


def tenant(key: str = "k1", team: str = "search") -> Tenant:
    return Tenant(Key(key, team), Policy(team=team))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "Say something"),
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
    room = Feedback(database)
    await room.hear(tenant(), flight("r1"), parse({"rating": "good"}))
    await room.hear(tenant(), flight("r2"), parse({"score": 0.5}))
    await room.hear(tenant(team="other"), flight("r3", "large"), parse({"rating": "bad"}))
    await room.hear(tenant(), flight("r4"), parse({"cache": "wrong"}))
    assert await room.quality("search") == [{"backend": "small", "score": 0.75, "voices": 2}]
    assert len(await room.quality()) == 2


async def test_a_key_has_one_voice_per_request(database: Database) -> None:
    room = Feedback(database)
    await room.hear(tenant(), flight("r1"), parse({"rating": "good"}))
    await room.hear(tenant(), flight("r1"), parse({"rating": "bad"}))
    assert await room.quality() == [{"backend": "small", "score": 0.0, "voices": 1}]
