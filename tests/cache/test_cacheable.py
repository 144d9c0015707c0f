from __future__ import annotations

import orjson
import pytest

from gateway.cache.cacheable import doubtful, keepable
from gateway.dialects.openai_chat.assembly import MAX_BYTES
from gateway.domain.record import Record
from gateway.domain.routing.route import Route
from tests.cache.conftest import BACKEND, Given, completion, record, tenant


def test_a_whole_answer_that_says_something_is_kept() -> None:
    assert keepable(Given(), "openai_chat") == completion()
    assert keepable(Given(finish="length"), "openai_chat") is not None


@pytest.mark.parametrize(
    "answer",
    [
        Given(complete=False),
        Given(finish="tool_calls"),
        Given(finish="content_filter"),
        Given(finish=""),
        Given(completion("")),
        Given(completion("  \n")),
        Given(completion(None)),
        Given(completion("x", refusal="I will not.")),
        Given(completion("I'm sorry, but I can't help with that.")),
        Given(completion("Lo siento, no puedo ayudar con eso.")),
        Given(completion("Desculpe, não posso ajudar.")),
        Given(completion("x", tool_calls=[{"id": "1"}])),
        Given(completion("x", function_call={"name": "f"})),
        Given(completion("x" * MAX_BYTES)),
        Given(b"not json"),
        Given(b"[]"),
        Given(orjson.dumps({"choices": []})),
        Given(orjson.dumps({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]})),
    ],
)
def test_what_is_broken_empty_refused_or_asks_for_tools_is_not(answer: Given) -> None:
    assert keepable(answer, "openai_chat") is None


def record_below(below: float) -> Record:
    seen = record(tenant())
    seen.route = Route((BACKEND,), "tests", escalate_below=below)
    return seen


@pytest.mark.parametrize(("confidence", "below", "doubt"), [(0.5, 0.6, True), (0.7, 0.6, False), (None, 0.6, False)])
def test_an_answer_that_its_backend_was_unsure_of_is_not_kept(
    confidence: float | None, below: float, doubt: bool
) -> None:
    attempt = Given().attempt
    assert attempt is not None
    attempt.confidence = confidence
    assert doubtful(record_below(below), attempt) is doubt


def test_nor_one_that_should_have_been_escalated() -> None:
    seen, attempt = record_below(0.0), Given().attempt
    assert attempt is not None
    assert not doubtful(seen, attempt)
    seen.weak = True
    assert doubtful(seen, attempt)


def test_what_is_no_message_in_its_dialect_is_not_kept() -> None:
    assert keepable(Given(orjson.dumps({"content": "no list"})), "anthropic_messages") is None
