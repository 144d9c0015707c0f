from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
import pytest

from gateway.domain.answer import Answer
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import Route
from gateway.domain.routing.strategy import StrategyAnswer
from gateway.errors import AllBackendsFailed, BackendRefused, BudgetExhausted
from tests.backends.conftest import CallerOf, backend_at
from tests.backends.strategies import Agreement, route_of
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request, request_in
from tests.support.waiting import until


@pytest.fixture
async def middle() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


@pytest.fixture
def three(small: Provider, middle: Provider, large: Provider, caller_of: CallerOf) -> Caller:
    return caller_of(backend_at(small, "small"), backend_at(middle, "middle"), backend_at(large, "large", tier="large"))


def call(
    who: Caller, request: CompletionRequest | None = None, *, at_once: int = 1, **more: Any
) -> asyncio.Task[Answer]:
    route = route_of(*who.fleet.backends, at_once=at_once)
    return asyncio.get_running_loop().create_task(who.call(request or chat_request(), route, **more))


def text_of(answer: bytes) -> str:
    return str(orjson.loads(answer)["choices"][0]["message"]["content"])


def streamed(answer: bytes) -> str:
    chunks = [orjson.loads(line[6:]) for line in answer.split(b"\n\n") if line.startswith(b"data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


# plain requests


async def test_two_that_agree_settle_it(small: Provider, middle: Provider, large: Provider, three: Caller) -> None:
    small.script(Reply(text="It is 3 + 4 = 7."))
    middle.script(Reply(text="The answer is 7"))
    answer = await call(three)
    assert text_of(await read(answer)) == "It is 3 + 4 = 7."
    assert three.outcomes == [("small", "ok"), ("middle", "escalated")]
    first, second = three.record.attempts
    assert three.books.closed == {second.id: "escalated"}
    assert three.books.still_open == [first.id]
    assert three.record.served_by is answer.attempt is first is three.hold.followed
    assert second.usage == middle.last.usage
    assert not large.exchanges
    assert [name for name, _ in three.hold.extended] == ["small", "middle"]


async def test_where_two_disagree_a_third_is_asked(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.script(Reply(text="7"))
    middle.script(Reply(text="8"))
    large.script(Reply(text="So it is 8."))
    assert text_of(await read(await call(three))) == "8"
    assert three.outcomes == [("small", "escalated"), ("middle", "ok"), ("large", "escalated")]
    assert [(told.backend, told.vote) for told in three.record.answers] == [
        ("small", "number:7"),
        ("middle", "number:8"),
        ("large", "number:8"),
    ]
    assert three.record.escalated
    assert three.fleet.stats()["escalated"] == 1
    assert three.settled()


@pytest.mark.parametrize("failure", [Fail(500), Fail(429), Fail(200, body="html"), Fail(401)])
async def test_without_a_member_that_fails_the_strategy_goes_on(
    small: Provider, middle: Provider, large: Provider, three: Caller, failure: Fail
) -> None:
    small.script(Reply(text="7"))
    middle.default = failure
    large.script(Reply(text="7"))
    assert text_of(await read(await call(three))) == "7"
    assert (three.outcomes[0], three.outcomes[-1]) == (("small", "ok"), ("large", "escalated"))
    assert {outcome for name, outcome in three.outcomes if name == "middle"} == {"failed"}
    assert three.settled()
    notes = [note["backend"] for note in three.record.notes if note["what"] == "member failed"]
    assert notes == ["middle"]


async def test_a_weak_answer_has_no_say(small: Provider, middle: Provider, large: Provider, three: Caller) -> None:
    small.script(Reply(text="I'm sorry, but I can't help with that."))
    middle.script(Reply(text="7"))
    large.script(Reply(text="7"))
    assert text_of(await read(await call(three))) == "7"
    assert three.outcomes == [("small", "escalated"), ("middle", "ok"), ("large", "escalated")]


async def test_a_budget_exhausted_midway_leaves_the_best_so_far(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.script(Reply(text="7"))
    middle.script(Reply(text="8"))
    three.hold.too_dear = ("large",)
    assert text_of(await read(await call(three))) == "8"
    assert three.outcomes == [("small", "escalated"), ("middle", "ok")]
    assert three.record.notes[-1]["why"] == BudgetExhausted.code
    assert not large.exchanges
    assert three.settled()


async def test_a_budget_exhausted_from_the_start_is_told(three: Caller) -> None:
    three.hold.too_dear = ("small", "middle", "large")
    with pytest.raises(BudgetExhausted):
        await call(three)
    assert three.record.attempts == []


async def test_nobody_else_is_asked_near_the_deadline(small: Provider, middle: Provider, three: Caller) -> None:
    small.script(Reply(text="7", delay_s=0.2))
    assert text_of(await read(await call(three, within_s=0.4))) == "7"
    assert three.outcomes == [("small", "ok")]
    assert three.record.notes[-1] == {**three.record.notes[-1], "what": "strategy stopped", "why": "deadline_exceeded"}
    assert not middle.exchanges


async def test_an_answer_that_does_not_come_in_time_leaves_the_one_before(
    small: Provider, middle: Provider, three: Caller
) -> None:
    small.script(Reply(text="7"))
    middle.script(Reply(text="7", delay_s=30))
    assert text_of(await read(await call(three, within_s=1.0))) == "7"
    assert three.outcomes == [("small", "ok"), ("middle", "interrupted")]
    assert three.settled()
    await until(lambda: middle.last.hung_up)
    assert three.fleet.stats()["middle.in_flight"] == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_that_leaves_midway_closes_every_attempt_once(
    small: Provider, middle: Provider, three: Caller, stream: bool
) -> None:
    small.script(Reply(text="7"))
    middle.script(Reply(text="7", prefill_s=30))
    calling = call(three, chat_request(stream=stream))
    await until(lambda: middle.exchanges)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert list(three.books.closed.values()) == ["interrupted", "escalated"]
    assert three.books.still_open == []
    await until(lambda: middle.last.hung_up)
    assert sum(three.fleet.stats()[f"{name}.in_flight"] for name in ("small", "middle", "large")) == 0  # type: ignore[misc]


async def test_of_several_asked_at_once_the_rest_are_left_when_two_agree(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.script(Reply(text="7", delay_s=0.05))
    middle.script(Reply(text="7"))
    large.script(Reply(text="7", delay_s=30))
    assert text_of(await read(await call(three, at_once=3))) == "7"
    assert dict(three.outcomes)["large"] == "interrupted"
    assert sorted(dict(three.outcomes).values()) == ["escalated", "interrupted", "ok"]
    assert three.settled()
    await until(lambda: large.last.hung_up)


async def test_a_request_that_is_wrong_everywhere_is_refused_at_once(
    small: Provider, middle: Provider, three: Caller
) -> None:
    small.default = Fail(400, "no such field", param="x")
    with pytest.raises(BackendRefused):
        await call(three)
    assert not middle.exchanges


async def test_when_all_fail_the_client_hears_of_all(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.default = middle.default = large.default = Fail(500)
    with pytest.raises(AllBackendsFailed, match=r"small failed.*middle failed.*large failed"):
        await call(three)
    assert three.books.still_open == []
    assert set(three.books.closed.values()) == {"failed"}


async def test_who_stands_by_answers_when_no_member_did(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.default = middle.default = Fail(500)
    large.default = Reply(text="7")
    backends = three.fleet.backends
    strategy = route_of(*backends[:2]).asking
    answer = await three.call(chat_request(), Route(backends, "test", asking=strategy))
    assert text_of(await read(answer)) == "7"
    assert three.outcomes[-1] == ("large", "ok")


# streams


async def test_a_streams_answers_are_compared_and_the_chosen_one_is_replayed_as_it_came(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.script(Reply(text="Well, it is 7.", drip_s=0.002))
    middle.script(Reply(text="The answer is 7"))
    answer = await call(three, chat_request(stream=True))
    pieces = [piece async for piece in pieces_of(answer)]
    assert len(pieces) > 3
    assert streamed(b"".join(pieces)) == "Well, it is 7."
    assert answer.ending == b"data: [DONE]\n\n"
    assert answer.complete
    body = answer.completion()
    assert body is not None
    assert text_of(body) == "Well, it is 7."
    assert three.outcomes == [("small", "ok"), ("middle", "escalated")]
    assert three.record.attempts[0].usage == small.last.usage
    assert three.settled()
    await answer.aclose()
    assert not large.exchanges


async def test_a_stream_that_takes_too_long_to_compare_comes_from_the_reference(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    three.policy = Policy(team="search", streams={"hold_for": "300ms"})
    small.script(Reply(text="7"))
    middle.script(Reply(tokens=500, drip_s=0.02))
    large.script(Reply(text="So it is 7, says the reference."))
    answer = await call(three, chat_request(stream=True))
    assert streamed(await read(answer)) == "So it is 7, says the reference."
    assert three.outcomes == [("small", "escalated"), ("middle", "interrupted"), ("large", "ok")]
    await until(lambda: middle.last.hung_up)
    left = three.record.attempts[1]
    assert left.usage is not None
    assert 0 < left.usage.output_tokens <= middle.last.tokens_sent


async def test_what_is_known_to_take_too_long_is_not_tried(small: Provider, large: Provider, three: Caller) -> None:
    small.default = Reply(text="7", delay_s=0.15)
    await read(await three.call(chat_request(), Route(three.fleet.backends[:1], "test")))
    three.policy = Policy(team="search", streams={"hold_for": "100ms"})
    large.script(Reply(text="7, says the reference."))
    answer = await call(three, chat_request(stream=True))
    assert streamed(await read(answer)) == "7, says the reference."
    assert len(small.exchanges) == 1


async def test_a_stream_whose_answer_is_given_anyway_is_not_kept_back(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.script(Fail(401))
    middle.script(Fail(401))
    large.script(Reply(tokens=40, drip_s=0.01))
    answer = await call(three, chat_request(stream=True))
    assert large.last.tokens_sent < 40
    await read(answer)
    assert three.outcomes == [("small", "failed"), ("middle", "failed"), ("large", "ok")]


async def test_a_stream_that_repeats_itself_is_stopped_at_once(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.script(Reply(text="I will say it again. " * 400, drip_s=0.001))
    middle.script(Reply(text="7"))
    large.script(Reply(text="7"))
    assert streamed(await read(await call(three, chat_request(stream=True)))) == "7"
    await until(lambda: small.last.hung_up)
    assert small.last.tokens_sent < 1000
    stopped = three.record.attempts[0]
    assert (stopped.outcome, stopped.error) == ("escalated", "repetition")
    assert stopped.usage is not None
    assert stopped.usage.estimated


class PrefersTheFirst(Agreement):
    """Of answers that do not agree, the first one is given."""

    def serves(self, answers: Sequence[StrategyAnswer]) -> int:
        return self._agreed(answers) or 0


async def test_when_all_streams_repeat_themselves_the_reference_answers_and_nothing_above_the_ceiling(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.default = middle.default = Reply(text="I will say it again. " * 40)
    backends = three.fleet.backends
    asking = PrefersTheFirst(("small", "middle"))
    route = Route(backends, "test", reference=backends[1], asking=asking, above=frozenset({"large"}))
    await read(await three.call(chat_request(stream=True), route))
    assert three.outcomes == [("small", "escalated"), ("middle", "escalated"), ("middle", "ok")]
    assert not large.exchanges


async def test_a_stream_that_breaks_midway_is_a_member_that_failed(
    small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    small.script(Reply(tokens=20, cut="rst", after=5))
    middle.script(Reply(text="7"))
    large.script(Reply(text="7"))
    assert streamed(await read(await call(three, chat_request(stream=True)))) == "7"
    assert three.outcomes == [("small", "interrupted"), ("middle", "escalated"), ("large", "ok")]
    assert three.settled()
    assert three.fleet.stats()["small.in_flight"] == 0


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_responses", "openai_completions"])
async def test_clients_of_every_dialect_get_the_chosen_stream_in_their_own(
    dialect: DialectName, small: Provider, middle: Provider, large: Provider, three: Caller
) -> None:
    request = request_in(dialect, stream=True)
    small.script(Reply(text="I'm sorry, but I can't help with that, for " + "many a good reason. " * 20, drip_s=0.002))
    middle.script(Reply(text="So it comes to 7."))
    large.script(Reply(text="7, I would say: 7"))
    answer = await call(three, request)
    heard = await read(answer)
    assert b"sorry" not in heard
    assert b"comes" in heard or b"would" in heard
    assert answer.complete
    assert answer.completion() is not None
    assert dict(three.outcomes)["small"] == "escalated"
    assert three.settled()
    await until(lambda: small.last.hung_up)


class Broken:
    def next(self, answers: Any) -> tuple[str, ...]:
        raise ZeroDivisionError

    serves = next


@pytest.mark.parametrize("stream", [False, True])
async def test_a_strategy_that_fails_fails_no_request(large: Provider, three: Caller, stream: bool) -> None:
    route = Route(three.fleet.backends, "test", asking=Broken())  # type: ignore[arg-type]
    assert b"said" in await read(await three.call(chat_request(stream=stream), route))
    assert three.outcomes == [("small", "ok")]
