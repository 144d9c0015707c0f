from __future__ import annotations

import asyncio
import math
from typing import Any

import orjson
import pytest

from gateway.domain.answer import Answer
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Route
from gateway.errors import BudgetExhausted, StreamBroken
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request
from tests.support.waiting import until

REFUSAL = "I'm sorry, but I can't help with that, because " + "I was told not to. " * 50


@pytest.fixture
def pair(small: Provider, large: Provider, caller_of: CallerOf) -> Caller:
    large.default = Reply(text="strong, says the larger one")
    return caller_of(backend_at(small, "small", capabilities=["logprobs"]), backend_at(large, "large", tier="large"))


def call(pair: Caller, request: CompletionRequest | None = None) -> asyncio.Task[Answer]:
    small, large = pair.fleet.backends
    route = Route((small,), "test", escalate_to=large, escalate_below=0.6)
    return asyncio.get_running_loop().create_task(pair.call(request or chat_request(stream=True), route))


def chunks(answer: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line[6:]) for line in answer.split(b"\n\n") if line.startswith(b"data: {")]


def streamed_text(answer: bytes) -> str:
    deltas = [choice["delta"] for chunk in chunks(answer) for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


async def test_a_refusing_stream_is_stopped_at_once_and_nothing_of_it_is_seen(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(Reply(text=REFUSAL, drip_s=0.005))
    assert streamed_text(await read(await call(pair))) == "strong, says the larger one"
    assert pair.outcomes == [("small", "escalated"), ("large", "ok")]
    await until(lambda: small.last.hung_up)
    weak = pair.record.attempts[0]
    assert weak.error == "refusal"
    assert weak.usage is not None
    assert weak.usage.estimated
    assert weak.usage.input_tokens == pair.tokens
    assert 0 < weak.usage.output_tokens <= small.last.tokens_sent < 40
    assert pair.record.escalated
    assert pair.settled()


async def test_an_unsure_beginning_is_replaced_and_a_sure_one_is_not(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(Reply(tokens=100, drip_s=0.002, logprob=math.log(0.3)))
    assert streamed_text(await read(await call(pair))) == "strong, says the larger one"
    small.script(Reply(tokens=100, drip_s=0.002, logprob=math.log(0.9)))
    assert streamed_text(await read(await call(pair))) == "".join(f"t{n} " for n in range(100))
    assert len(large.exchanges) == 1
    assert pair.outcomes == [("small", "ok")]


async def test_probabilities_that_nobody_asked_for_are_taken_out_and_others_stay(small: Provider, pair: Caller) -> None:
    small.script(Reply(tokens=60), Reply(tokens=60))
    answer = await call(pair)
    heard = await read(answer)
    assert small.last.json["logprobs"] is True
    assert len(chunks(heard)) > 60
    assert not any(choice.get("logprobs") for chunk in chunks(heard) for choice in chunk["choices"])
    whole = answer.completion()
    assert whole is not None
    assert orjson.loads(whole)["choices"][0]["logprobs"] is None
    heard = await read(await call(pair, chat_request(stream=True, logprobs=True)))
    assert any(choice.get("logprobs") for chunk in chunks(heard) for choice in chunk["choices"])


async def test_what_was_kept_back_and_what_follows_comes_as_it_came(small: Provider, pair: Caller) -> None:
    small.script(Reply(tokens=80, drip_s=0.003))
    answer = await call(pair)
    attempt = pair.record.attempts[0]
    assert 20 < attempt.chunks < 60
    assert attempt.usage is None
    pieces = [piece async for piece in pieces_of(answer)]
    assert len(pieces) > 40
    assert streamed_text(b"".join(pieces)) == "".join(f"t{n} " for n in range(80))
    assert answer.ending == b"data: [DONE]\n\n"
    assert attempt.usage == small.last.usage
    await answer.aclose()


async def test_a_slow_stream_is_kept_back_for_so_long_and_no_longer(small: Provider, pair: Caller) -> None:
    pair.policy = Policy(team="search", streams={"hold_for": "100ms"})
    small.script(Reply(tokens=200, drip_s=0.05))
    answer = await call(pair)
    assert pair.record.attempts[0].chunks < 15
    await answer.aclose()
    await until(lambda: small.last.hung_up)


@pytest.mark.parametrize("off", [{"hold_tokens": 0}, {"hold_for": "0s"}])
async def test_it_can_be_switched_off(small: Provider, large: Provider, pair: Caller, off: dict[str, Any]) -> None:
    pair.policy = Policy(team="search", streams=off)
    small.script(Reply(text=REFUSAL))
    assert streamed_text(await read(await call(pair))).startswith("I'm sorry")
    assert "logprobs" not in small.last.json
    assert not large.exchanges


async def test_once_a_byte_is_out_nothing_is_switched(small: Provider, large: Provider, pair: Caller) -> None:
    small.script(Reply(tokens=60, drip_s=0.002, cut="rst", after=50))
    answer = await call(pair)
    with pytest.raises(StreamBroken):
        await read(answer)
    await answer.aclose()
    assert not large.exchanges
    assert pair.record.attempts[0].chunks >= 40


async def test_one_that_breaks_before_is_a_failure_that_others_stand_in_for(
    small: Provider, large: Provider, caller_of: CallerOf
) -> None:
    pair = caller_of(backend_at(small, "small"), backend_at(large, "large", tier="large"))
    large.default = Reply(text="strong")
    small.script(Reply(tokens=60, cut="rst", after=5))
    first, second = pair.fleet.backends
    route = Route((first, second), "test", escalate_to=second, escalate_below=0.6)
    assert streamed_text(await read(await pair.call(chat_request(stream=True), route))) == "strong"
    assert pair.outcomes == [("small", "interrupted"), ("large", "ok")]
    assert pair.settled()


async def test_where_the_stronger_one_fails_the_one_that_was_stopped_is_asked_again(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(Reply(text=REFUSAL), Reply(text=REFUSAL))
    large.default = Fail(500)
    assert streamed_text(await read(await call(pair))).startswith("I'm sorry")
    assert [outcome for name, outcome in pair.outcomes if name == "small"] == ["escalated", "ok"]
    assert pair.settled()


async def test_under_load_every_weak_beginning_is_replaced_before_its_first_byte(
    small: Provider, large: Provider, pair: Caller
) -> None:
    weak, strong = Reply(text=REFUSAL, drip_s=0.002), Reply(text="Here is what you wanted. " * 10, drip_s=0.002)
    small.script(*(weak if number % 2 else strong for number in range(40)))
    patient = Policy(team="search", streams={"hold_for": "30s"})
    callers = [Caller(pair.fleet, policy=patient) for _ in range(40)]
    heard = [streamed_text(await read(answer)) for answer in await asyncio.gather(*(call(each) for each in callers))]
    assert len(heard) == 40
    assert not any("sorry" in each for each in heard)
    assert sum(each == "strong, says the larger one" for each in heard) == 20 == len(large.exchanges)
    assert all(each.settled() for each in callers)
    assert pair.fleet.stats()["small.in_flight"] == pair.fleet.stats()["large.in_flight"] == 0
    await small.settled()


async def test_a_hold_that_runs_out_while_it_is_kept_back_is_the_relays_to_tell(
    small: Provider, large: Provider, pair: Caller
) -> None:
    small.script(Reply(tokens=100, drip_s=0.002))
    pair.hold.covers = 500  # of what came at most, by its bytes

    pair.hold.spent = BudgetExhausted("It is spent.", truncates=True)
    answer = await call(pair)
    assert not large.exchanges
    attempt = pair.record.attempts[0]
    assert attempt.outcome == "open"
    assert pair.books.still_open == [attempt.id]
    assert 0 < attempt.chunks < 100
    await answer.aclose()
