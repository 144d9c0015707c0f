from __future__ import annotations

import asyncio
import math

import orjson
import pytest

from gateway.backends.cascade.escalation import Escalation
from gateway.domain.answer import Answer
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Route
from gateway.domain.routing.strategy import FAILED, StrategyAnswer
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.requests import chat_request
from tests.support.waiting import until

SURE, UNSURE = Reply(text="weak", logprob=math.log(0.95)), Reply(text="weak", logprob=math.log(0.3))


@pytest.fixture
def pair(small: Provider, large: Provider, caller_of: CallerOf) -> Caller:
    large.default = Reply(text="strong")
    return caller_of(backend_at(small, "small", capabilities=["logprobs"]), backend_at(large, "large", tier="large"))


def call(pair: Caller, request: CompletionRequest | None = None) -> asyncio.Task[Answer]:
    small, large = pair.fleet.backends
    route = Route((small,), "test", escalate_to=large, escalate_below=0.6)
    return asyncio.get_running_loop().create_task(pair.call(request or chat_request(), route))


def text_of(answer: bytes) -> str:
    return str(orjson.loads(answer)["choices"][0]["message"]["content"])


async def test_an_unsure_answer_is_replaced_by_the_stronger_backends(small: Provider, pair: Caller) -> None:
    small.script(UNSURE)
    answer = await call(pair)
    assert text_of(await read(answer)) == "strong"
    weak, strong = pair.record.attempts
    assert (weak.outcome, strong.outcome) == ("escalated", "ok")
    assert weak.confidence == pytest.approx(0.3)
    assert weak.usage == small.last.usage
    assert pair.record.escalated
    assert pair.record.served_by is answer.attempt is strong
    assert pair.books.closed == {weak.id: "escalated"}
    assert pair.books.still_open == [strong.id]
    assert [name for name, _ in pair.hold.extended] == ["small", "large"]
    assert pair.fleet.stats()["escalated"] == 1


async def test_a_sure_answer_is_served_without_the_probabilities_that_nobody_asked_for(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(SURE)
    body = await read(await call(pair))
    assert text_of(body) == "weak"
    assert small.last.json["logprobs"] is True
    assert orjson.loads(body)["choices"][0].get("logprobs") is None
    assert not large.exchanges
    assert not pair.record.escalated


async def test_probabilities_that_the_client_asked_for_stay(small: Provider, pair: Caller) -> None:
    small.script(SURE)
    body = await read(await call(pair, chat_request(logprobs=True)))
    assert orjson.loads(body)["choices"][0]["logprobs"]["content"]


async def test_a_backend_that_cannot_give_probabilities_is_not_asked_for_them(
    small: Provider, large: Provider, caller_of: CallerOf
) -> None:
    pair = caller_of(backend_at(small, "small"), backend_at(large, "large"))
    await read(await call(pair))
    assert "logprobs" not in small.last.json
    assert not large.exchanges


@pytest.mark.parametrize("text", ["", "  \n", "I'm sorry, but I can't help with that."])
async def test_empty_and_declining_answers_are_replaced(small: Provider, pair: Caller, text: str) -> None:
    small.script(Reply(text=text))
    assert text_of(await read(await call(pair))) == "strong"


async def test_a_call_of_a_tool_is_an_answer(small: Provider, large: Provider, pair: Caller) -> None:
    small.script(Reply(tool="search"))
    await read(await call(pair))
    assert not large.exchanges


@pytest.mark.parametrize("failure", [Fail(500), Fail(400), Fail(429), Fail(200, body="html")])
async def test_the_weak_answer_is_served_when_the_stronger_backend_fails(
    small: Provider, large: Provider, pair: Caller, failure: Fail
) -> None:
    small.script(UNSURE)
    large.default = failure
    answer = await call(pair)
    assert text_of(await read(answer)) == "weak"
    weak = pair.record.attempts[0]
    assert pair.record.served_by is answer.attempt is weak
    assert weak.outcome == "ok"
    assert pair.books.still_open == [weak.id]
    assert set(pair.books.closed.values()) == {"failed"}
    assert not pair.record.escalated
    assert {"what": "member failed", "backend": "large"}.items() <= pair.record.notes[-1].items()


async def test_the_weak_answer_is_served_when_the_budget_does_not_allow_the_stronger_backend(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(UNSURE)
    pair.hold.too_dear = ("large",)
    assert text_of(await read(await call(pair))) == "weak"
    assert not large.exchanges


async def test_a_call_cancelled_during_escalation_closes_both_attempts(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(UNSURE)
    large.script(Reply(delay_s=10))
    calling = call(pair)
    await until(lambda: large.exchanges)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert list(pair.books.closed.values()) == ["interrupted", "escalated"]
    assert pair.books.still_open == []
    await until(lambda: large.last.hung_up)


async def test_a_fallbacks_answer_is_not_escalated(small: Provider, large: Provider, caller_of: CallerOf) -> None:
    pair = caller_of(backend_at(small, "small"), backend_at(large, "large"))
    small.script(Fail(500), Fail(500))
    large.script(Reply(text=""))
    first, second = pair.fleet.backends
    await read(await pair.call(chat_request(), Route((first, second), "test", escalate_to=second, escalate_below=0.6)))
    assert len(large.exchanges) == 1


@pytest.mark.parametrize(
    ("answers", "asks", "serves"),
    [
        ([], ("a",), None),
        ([StrategyAnswer("a", None)], (), 0),
        ([StrategyAnswer("a", "1", "unsure", 0.5)], ("b",), 0),
        ([StrategyAnswer("a", None, "refusal")], ("b",), 0),
        ([StrategyAnswer("a", None, FAILED)], (), 0),
        ([StrategyAnswer("a", None, "empty"), StrategyAnswer("b", None)], (), 1),
        ([StrategyAnswer("a", None, "empty"), StrategyAnswer("b", None, "refusal")], (), 1),
        ([StrategyAnswer("a", None, "empty"), StrategyAnswer("b", None, FAILED)], (), 0),
    ],
)
def test_it_is_a_strategy_of_two(answers: list[StrategyAnswer], asks: tuple[str, ...], serves: int | None) -> None:
    strategy = Escalation("a", "b")
    assert strategy.next(answers) == asks
    if serves is not None:
        assert strategy.serves(answers) == serves
