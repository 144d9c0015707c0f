"""Which answers are compared with whose, and what a cascade shows for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.protocols import NoEvidence
from gateway.domain.record import Record
from gateway.domain.routing.route import Considered, Decision, Grade, Route
from gateway.domain.routing.strategy import StrategyAnswer
from gateway.learning.shadow.sample import AGREED, cascaded, plain, repeatable, sample
from tests.fakes.gateway import record_of
from tests.learning.conftest import shadowed_tenant
from tests.routing.conftest import LARGE, SMALL
from tests.support.requests import small_request

NOBODY = NoEvidence()
CONSIDERED = (Considered("small", "", 0.93, 100), Considered("large", "", None, 2500))


class Whole:
    """As much of an answer as comparing reads."""

    complete, finish, choices = True, "stop", None

    def __init__(self, record: Record, backend: Any) -> None:
        self.attempt = record.attempt(backend)
        self.attempt.outcome = "ok"

    def completion(self) -> bytes:
        return b'{"choices":[{"message":{"role":"assistant","content":"42"},"finish_reason":"stop"}]}'


class Strategy:
    """Only its presence counts."""


def served(backend: Any, **route: Any) -> tuple[Any, Record, Any]:
    request = small_request("What is 6 times 7?", model="auto")
    record = record_of(request, shadowed_tenant())
    known = {"reference": LARGE, "considered": CONSIDERED, "quality": 0.9, "grade": Grade(0.1), **route}
    record.route = Route((backend,), "", **known)
    return request, record, Whole(record, backend)


def taken(backend: Any, drawn: float = 0.0, **route: Any) -> Any:
    return sample(*served(backend, **route), NOBODY, drawn)


def test_the_cheap_one_is_held_against_the_reference() -> None:
    found = taken(SMALL)
    assert (found.source, found.promise.backend, found.reference, found.asks) == ("shadow", "small", "large", "large")
    assert (found.promise.predicted, found.promise.target) == (0.93, 0.9)


def test_where_the_reference_served_a_cheaper_one_is_probed() -> None:
    found = taken(LARGE)
    assert (found.source, found.promise.backend, found.asks) == ("probe", "small", "small")
    assert found.promise.target == 0.9


@pytest.mark.parametrize(("asked", "source"), [(LARGE, "holdout"), (SMALL, "observe")])
def test_where_routing_looked_on_its_decision_is_compared(asked: Any, source: str) -> None:
    other = SMALL if asked is LARGE else LARGE
    found = taken(
        asked, decided=Decision(((other, 1.0),), 0.9), considered=(*CONSIDERED[:1], Considered("large", "", 0.99, 9))
    )
    assert (found.source, found.asks) == (source, other.name)


@pytest.mark.parametrize(
    "route",
    [
        {"reference": None},
        {"quality": None},
        {"considered": (Considered("small", "", None, 1), Considered("large", "", None, 2))},
        {"decided": Decision(((SMALL, 1.0),), 0.9)},
    ],
)
def test_what_nothing_was_promised_of_is_not_compared(route: dict[str, Any]) -> None:
    assert taken(SMALL, **route) is None


def test_nobody_is_probed_who_is_excluded_or_dearer() -> None:
    for small in (Considered("small", "lacks tools", 0.9, 100), Considered("small", "", 0.9, 9999)):
        assert taken(LARGE, considered=(small, CONSIDERED[1])) is None


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, True),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, True),
        ({"tools": [{"type": "web_search"}]}, False),
        ({"web_search_options": {}}, False),
        ({"store": True}, False),
        ({"n": 2}, False),
    ],
)
def test_what_a_provider_acts_on_is_not_asked_twice(fields: dict[str, Any], may: bool) -> None:
    assert repeatable(small_request("x", **fields)) is may


def test_the_second_question_is_plain_and_gives_way() -> None:
    asked = plain(small_request("x", stream=True, stream_options={"include_usage": True}, max_tokens=9))
    assert not asked.stream
    assert asked.body.keys().isdisjoint({"stream", "stream_options"})
    assert (asked.controls.priority, asked.max_output_tokens) == ("batch", 9)


def votes_of(*votes: str | None, weak: str = "") -> tuple[StrategyAnswer, ...]:
    names = ("small", "large", "third")
    return tuple(
        StrategyAnswer(name, vote, weak if not number else "")
        for number, (name, vote) in enumerate(zip(names, votes, strict=False))
    )


@pytest.mark.parametrize(
    ("answers", "by", "score", "weight"),
    [
        (votes_of("7", "7"), SMALL, 1.0, AGREED),
        (votes_of("7", "8"), LARGE, 0.0, 1.0),
        (votes_of("7", "7"), LARGE, 1.0, 1.0),
        (votes_of(None, "8"), LARGE, None, None),
        (votes_of("7", "8", weak="unsure"), LARGE, 0.0, 0.0),
        (votes_of("7", "7", weak="unsure"), LARGE, 1.0, 0.0),
        (votes_of("7"), SMALL, None, None),
    ],
)
def test_a_cascade_shows_how_good_the_one_was_that_it_asked_first(
    answers: tuple[StrategyAnswer, ...], by: Any, score: float | None, weight: float | None
) -> None:
    _, record, answer = served(by, asking=Strategy())
    record.answers = answers
    found = cascaded(record, answer, NOBODY)
    assert (None if found is None else (found.backend, found.score, found.weight)) == (
        None if score is None else ("small", score, weight)
    )
