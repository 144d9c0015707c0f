"""Legacy completions over a backend that has them."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion

from gateway.dialects.openai_completions.dialect import choices, parse
from gateway.dialects.openai_completions.native import CompletionsToCompletions
from gateway.dialects.streams.sse import events
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BackendGarbage, StreamBroken
from tests.dialects.samples import DONE, USAGE, cut, event, read, steady
from tests.support.requests import completions_request

wire = CompletionsToCompletions()
READ = Usage(input_tokens=5, output_tokens=2)


def streaming(*, wants_usage: bool = False, **fields: Any) -> CompletionRequest:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if wants_usage else {}
    return completions_request(stream=True, **options, **fields)


def text_event(text: str, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": finish, **more}
    return event({**TOP, "choices": [choice]})


TOP = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
USAGE_ONLY = event({**TOP, "choices": [], "usage": USAGE})
WHOLE = text_event('a "b"') + text_event("\nñ") + text_event(" c") + text_event("", "stop") + USAGE_ONLY + DONE
TWO = text_event("a") + text_event("x", index=1) + text_event("b", "stop") + text_event("y", "length", index=1) + DONE
SPACED = WHOLE.replace(b'":', b'": ').replace(b"\n\n", b"\r\n\r\n")


def test_only_the_model_and_what_we_ask_for_is_spliced() -> None:
    request = parse(
        b'{ "prompt" : ["a"],\n"model":"auto", "temperature": 1.00, "new": null, "stream":true}', "r", Controls(), {}
    )
    assert wire.body(request, "m", None) == (
        b'{"stream_options":{"include_usage":true}, "prompt" : ["a"],\n"model":"m", "temperature": 1.00, "new": null, '
        b'"stream":true}'
    )
    assert orjson.loads(wire.body(completions_request(max_tokens=9), "m", None, max_output_tokens=4))["max_tokens"] == 4
    assert wire.body(completions_request(), "auto", None) == completions_request().raw


def test_the_gateways_own_wish_for_log_probabilities_is_granted_and_hidden() -> None:
    request = completions_request()
    assert orjson.loads(wire.body(request, "auto", None, logprobs=True))["logprobs"] == 1
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [None, -0.5], "top_logprobs": None, "text_offset": [0, 1]}
    body = orjson.dumps({**TOP, "choices": [{"text": "ab", "index": 0, "logprobs": logprobs, "finish_reason": "stop"}]})
    plain = wire.plain(request, body)
    assert plain.confidence == pytest.approx(math.exp(-0.5))
    assert orjson.loads(plain.body)["choices"][0]["logprobs"] is None
    assert wire.plain(completions_request(logprobs=0), body).body == body


def test_a_plain_answer_goes_through_and_is_read() -> None:
    body = orjson.dumps(
        {
            **TOP,
            "choices": [{"text": t, "index": n, "finish_reason": "stop"} for n, t in enumerate("ab")],
            "usage": USAGE,
        }
    )
    plain = wire.plain(completions_request(n=2), body)
    assert (plain.body, plain.usage, plain.finish, plain.text) == (body, READ, "stop", "a\nb")
    assert plain.choices == choices(orjson.loads(body))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"choices": []}', b'{"choices": [{"message": {"content": "chat"}}]}', b'{"error": "no"}']
)
def test_anything_but_a_completion_is_garbage(body: bytes) -> None:
    with pytest.raises(BackendGarbage):
        wire.plain(completions_request(), body)


@steady
@given(st.sampled_from([WHOLE, SPACED, TWO]), st.lists(st.integers(0, 700)), st.booleans())
def test_streams_are_relayed_as_they_came_without_what_only_we_asked_for(
    stream: bytes, at: list[int], wants_usage: bool
) -> None:
    reader = wire.reader(streaming(wants_usage=wants_usage))
    relayed = read(reader, cut(stream, at))
    *told, ending = events(stream)
    assert relayed == b"".join(one for one in told if wants_usage or b"prompt_tokens" not in one)
    assert (reader.ended, reader.ending) == (True, ending)


@pytest.mark.parametrize("stream", [WHOLE, SPACED])
def test_a_stream_is_counted_and_put_together_as_the_sdk_reads_it(stream: bytes) -> None:
    reader = wire.reader(streaming())
    read(reader, cut(stream, [100, 250]))
    assert (reader.finish, reader.usage, reader.chunks, reader.silent) == ("stop", READ, 4, 1)
    assert reader.delivered_text() == 'a "b"\nñ c'
    completion = reader.completion()
    assert completion is not None
    found = Completion.model_validate_json(completion)
    assert (found.choices[0].text, found.choices[0].finish_reason, found.id) == ('a "b"\nñ c', "stop", "cmpl-1")
    assert found.usage is not None
    assert wire.plain(streaming(), completion).usage == READ


def test_several_choices_are_kept_apart() -> None:
    reader = wire.reader(streaming(n=2))
    read(reader, [TWO])
    completion = orjson.loads(reader.completion() or b"")
    assert [(one["index"], one["text"], one["finish_reason"]) for one in completion["choices"]] == [
        (0, "ab", "stop"),
        (1, "xy", "length"),
    ]
    assert reader.finish == "length"


def test_log_probabilities_of_a_stream_are_joined_and_give_its_confidence() -> None:
    def one(token: str, logprob: float) -> bytes:
        return text_event(token, logprobs={"tokens": [token], "token_logprobs": [logprob], "text_offset": [0]})

    reader = wire.reader(streaming(logprobs=1))
    read(reader, [one("a", -0.1) + one("b", -0.3) + text_event("", "stop") + DONE])
    assert reader.confidence == pytest.approx((math.exp(-0.1) + math.exp(-0.3)) / 2)
    (choice,) = orjson.loads(reader.completion() or b"")["choices"]
    assert choice["logprobs"] == {"tokens": ["a", "b"], "token_logprobs": [-0.1, -0.3], "text_offset": [0, 0]}


@pytest.mark.parametrize("end", [b"", b"data: {", event({"error": {"message": "boom"}})])
def test_a_cut_or_failing_stream_has_no_ending(end: bytes) -> None:
    reader = wire.reader(streaming())
    with pytest.raises(StreamBroken):
        read(reader, [text_event("a") + text_event("b"), end] if end else [text_event("a") + text_event("b")])
    assert reader.ending == b""
    assert reader.completion() is None
    assert reader.delivered_text() == "ab"


def test_a_long_uniform_stream_is_not_parsed_event_by_event() -> None:
    told = [text_event(f"{number} ") for number in range(500)]
    reader = wire.reader(streaming())
    assert read(reader, [*told, text_event("", "stop") + DONE]) == b"".join(told) + text_event("", "stop")
    assert reader.chunks == 501
    assert reader.delivered_text() == "".join(f"{number} " for number in range(500))


@pytest.mark.parametrize("logprobs", [{"token_logprobs": 0.5}, {"token_logprobs": {"a": 1}}, 7])
def test_log_probabilities_of_a_wrong_type_tell_nothing(logprobs: Any) -> None:
    body = orjson.dumps({"choices": [{"text": "a", "index": 0, "finish_reason": "stop", "logprobs": logprobs}]})
    assert wire.plain(completions_request(logprobs=1), body).confidence is None
