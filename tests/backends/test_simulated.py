from __future__ import annotations

import orjson
import pytest

from gateway.domain.backend import Backend
from tests.backends.conftest import CallerOf
from tests.fakes.caller import Caller, read
from tests.support.requests import chat_request


@pytest.fixture
def caller(caller_of: CallerOf) -> Caller:
    return caller_of(Backend(name="pretend", kind="simulated", model="pretend-1", tier="large"))


async def test_every_answer_says_that_it_is_simulated_and_by_whom(caller: Caller) -> None:
    answer = await caller.call(chat_request("Why is the sky blue?"))
    body = orjson.loads(await read(answer))
    text = body["choices"][0]["message"]["content"]
    assert text.startswith("[simulated] ")
    assert "pretend" in text
    assert "Why is the sky blue?" in text
    assert body["model"] == "pretend-1"


async def test_the_stream_says_the_same_as_the_plain_answer(caller: Caller) -> None:
    plain = await caller.call(chat_request("hi"))
    streamed = await caller.call(chat_request("hi", stream=True))
    await read(streamed)
    assert streamed.delivered_text() == plain.delivered_text()
    assert streamed.complete
    assert streamed.ending == b"data: [DONE]\n\n"


async def test_usage_is_counted_in_both(caller: Caller) -> None:
    for stream in (False, True):
        answer = await caller.call(chat_request("hi there", stream=stream))
        await read(answer)
        assert answer.attempt is not None
        usage = answer.attempt.usage
        assert usage is not None
        assert usage.input_tokens > 0
        assert usage.output_tokens == len(answer.delivered_text().split(" "))


async def test_the_same_question_gets_the_same_answer(caller: Caller) -> None:
    first, second = [await caller.call(chat_request("hi")) for _ in range(2)]
    assert first.delivered_text() == second.delivered_text()


async def test_limits_and_parallel_answers_are_kept(caller: Caller) -> None:
    answer = await caller.call(chat_request("hi", max_tokens=3, n=2))
    body = orjson.loads(await read(answer))
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "length"]
    assert body["choices"][0]["message"]["content"] == "[simulated] No model"
    assert body["usage"]["completion_tokens"] == 6


async def test_a_long_question_is_not_repeated_whole(caller: Caller) -> None:
    answer = await caller.call(chat_request("word " * 1000))
    assert len(answer.delivered_text()) < 300
