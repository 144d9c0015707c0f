"""Anthropic's dialect at the door: what is read of a request, how errors are told, stored answers told again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest
from anthropic.types import ErrorResponse, Message
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.anthropic_messages.dialect import choices, error_body, error_event, replayed, status
from gateway.dialects.anthropic_messages.request import parse_prompt
from gateway.dialects.anthropic_messages.turns import shortened
from gateway.domain.request import Controls, Turn
from gateway.errors import (
    AllBackendsFailed,
    BackendFailed,
    BackendRateLimited,
    BackendRefused,
    BadRequest,
    BodyTooLarge,
    BudgetExhausted,
    ContextTooLong,
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    InvalidKey,
    LimitExceeded,
    MethodNotAllowed,
    NoBackend,
    Overloaded,
    ShareExceeded,
    StreamBroken,
    UnknownModel,
)
from tests.dialects.messages_samples import PNG, TOOL, accumulated, strict, well_formed
from tests.dialects.samples import USER, steady
from tests.support.requests import messages_request

# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_a_thread_is_refused_so_that_tool_runners_send_all_messages(thread: dict[str, str]) -> None:
    with pytest.raises(BadRequest) as refused:
        messages_request(thread=thread)
    error = orjson.loads(error_body(refused.value, "req_1"))["error"]
    assert error["details"]["error_code"] == "thread_unsupported_request"
    assert messages_request(thread=None)


def test_what_the_gateway_acts_on_is_read() -> None:
    raw = orjson.dumps(
        {
            "model": "claude", "max_tokens": 9, "temperature": 0.5, "stream": True, "invented": 1,
            "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image", "source": PNG}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {}},
                    {"type": "tool_use", "id": "t2", "name": "weather", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "17"},
                    {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "18"}]}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t3"}, {"type": "text", "text": "And?"}]},
                {"role": "prophet", "content": "?"},
            ],
        }
    )  # fmt: skip
    request = messages_request(raw=raw)
    assert request.turns == [
        Turn(-1, "system", "Be\nbrief."),
        Turn(0, "user", "Look:", images=1),
        Turn(1, "assistant", "", calls=("t1", "t2"), asides=True),
        Turn(2, "tool", "17\n18", results=("t1", "t2")),
        Turn(3, "user", "And?", results=("t3",), instructs=True),
        Turn(4, "user", "?"),
    ]
    assert (request.model, request.max_output_tokens, request.temperature, request.stream) == ("claude", 9, 0.5, True)
    assert (request.dialect, request.raw) == ("anthropic_messages", raw)
    assert request.needs == {"tools", "vision"}


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({}, set()),
        ({"tools": [TOOL]}, {"tools"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning"}),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, set()),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, {"json_schema"}),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": PNG}]}]}, set()),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": PNG}]}]}]},
            {"tools", "vision"},
        ),
    ],
)  # fmt: skip
def test_needs(fields: dict[str, Any], needs: set[str]) -> None:
    assert messages_request(**fields).needs == needs


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b'{"model": NaN}', None),
        (b'{"model": "\\ud800"}', None),
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [7]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "messages[0].content[0].id"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [7]}]}]},
            "messages[0].content[0].content[0]",
        ),
        ({"system": 7}, "system"),
        ({"system": [{"type": "text"}]}, "system[0].text"),
        ({"stream": "yes"}, "stream"),
        ({"tools": {}}, "tools"),
        ({"thinking": "hard"}, "thinking"),
        ({"metadata": []}, "metadata"),
        ({"stop_sequences": "a"}, "stop_sequences"),
    ],
)
def test_what_makes_no_sense_is_named(body: bytes | dict[str, Any], param: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        messages_request(raw=body) if isinstance(body, bytes) else messages_request(**body)
    assert caught.value.param == param
    if param is not None:
        assert param in orjson.loads(error_body(caught.value, "r"))["error"]["message"]


def test_a_prompt_to_be_counted_needs_no_limit() -> None:
    prompt = parse_prompt(orjson.dumps({"model": "m", "messages": [USER]}), "r", Controls(), {})
    assert (prompt.max_output_tokens, prompt.turns) == (None, [Turn(0, "user", "hello")])


WHOLE = [f"line {number}" for number in range(40)]


@steady
@given(st.integers(0, 300), st.integers(0, 300), st.lists(st.integers(1, 39), max_size=5))
def test_a_shortened_message_keeps_every_piece_in_its_place(head: int, tail: int, at: list[int]) -> None:
    """However a text is spread over results of tools, only its middle goes."""
    bounds = [0, *sorted(set(at)), 40]
    texts = ["\n".join(WHOLE[begin:end]) for begin, end in pairwise(bounds)]
    image = {"type": "image", "source": PNG}
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": f"t{number}",
            "content": text if number % 2 else [{"type": "text", "text": text}, image],
        }
        for number, text in enumerate(texts)
    ]
    whole = "\n".join(WHOLE)
    cut = f"{whole[:head]}\n[… left out …]\n{whole[max(head, len(whole) - tail) :]}"
    message = {"role": "user", "content": [*blocks, {"type": "text", "text": "?"}]}
    said = shortened(message, f"{cut}\n?")["content"]
    assert [block.get("tool_use_id") for block in said] == [*(f"t{number}" for number in range(len(texts))), None]
    assert said[-1] == {"type": "text", "text": "?"}
    left = [
        block["content"] if number % 2 else "".join(part.get("text", "") for part in block["content"])
        for number, block in enumerate(said[:-1])
    ]
    assert all(image in block["content"] for block in said[:-1:2])
    assert "".join(left).replace("\n", "") == cut.replace("\n", "")
    for kept, text in zip(left, texts, strict=True):
        assert kept == text or "left out" in kept or len(kept) < len(text)


def test_a_shortened_string_is_the_string() -> None:
    assert shortened({"role": "user", "content": "long", "x": 1}, "l…") == {"role": "user", "content": "l…", "x": 1}


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (BadRequest("x"), 400, "invalid_request_error"),
        (InvalidKey("x"), 401, "authentication_error"),
        (Forbidden("x"), 403, "permission_error"),
        (UnknownModel("x"), 404, "not_found_error"),
        (MethodNotAllowed("x"), 405, "invalid_request_error"),
        (BodyTooLarge("x"), 413, "request_too_large"),
        (LimitExceeded("x"), 429, "rate_limit_error"),
        (BudgetExhausted("x"), 429, "rate_limit_error"),
        (ShareExceeded("x"), 429, "rate_limit_error"),
        (Overloaded("x"), 529, "overloaded_error"),
        (NoBackend("x"), 529, "overloaded_error"),
        (AllBackendsFailed([]), 529, "overloaded_error"),
        (AllBackendsFailed([BackendFailed("x")]), 502, "api_error"),
        (AllBackendsFailed([BackendRateLimited("x")]), 429, "rate_limit_error"),
        (DeadlineExceeded("x"), 504, "timeout_error"),
        (StreamBroken("x"), 502, "api_error"),
        (GatewayError("x"), 500, "api_error"),
        (BackendRefused("x", status=422, kind="odd"), 422, "invalid_request_error"),
    ],
)
def test_errors_have_anthropics_shape_status_and_type(error: GatewayError, code: int, kind: str) -> None:
    assert status(error) == code
    said = orjson.loads(error_body(error, "req_7"))
    assert said == {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": "req_7"}
    if kind != "request_too_large":  # which the API sends, and its client's model leaves out
        strict(ErrorResponse, said)
    assert error_event(error, "req_7") == b"event: error\ndata: " + error_body(error, "req_7") + b"\n\n"


def test_agents_are_told_in_the_words_that_make_them_compact() -> None:
    told = orjson.loads(error_body(ContextTooLong("9 tokens, 5 fit.", param="messages"), ""))["error"]["message"]
    assert told == "prompt is too long: messages: 9 tokens, 5 fit."
    theirs = BackendRefused("prompt is too long: 9 > 5", code=ContextTooLong.code)
    assert orjson.loads(error_body(theirs, ""))["error"]["message"] == theirs.message


# -- stored answers ----------------------------------------------------------------------------------------------------


STORED = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "c",
    "content": [
        {"type": "thinking", "thinking": "Think of it. " * 20, "signature": "Eq=="},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "¡Hola! 😀 " * 50},
        {"type": "text", "text": "cited", "citations": [{"type": "char_location", "cited_text": "x",
            "document_index": 0, "start_char_index": 0, "end_char_index": 1}]},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1.5, {"b": None}]}},
        {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
    ],
    "stop_reason": "end_turn", "stop_sequence": None,
    "usage": {"input_tokens": 3, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 70,
              "service_tier": "standard"},
}  # fmt: skip


def test_a_stored_answer_streams_as_if_it_were_new() -> None:
    rest, ending = replayed(messages_request(stream=True), STORED)
    well_formed(rest + ending)
    assert ending == b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    assert accumulated(rest + ending) == Message.model_validate(STORED)
    assert rest.count(b"text_delta") > 3


def test_a_stored_answer_without_usage_streams_too() -> None:
    rest, ending = replayed(messages_request(stream=True), {**STORED, "usage": None, "content": []})
    well_formed(rest + ending)


def test_a_stored_answers_choice() -> None:
    (choice,) = choices(STORED)
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"].startswith("¡Hola!")
    assert choice["message"]["reasoning_content"].startswith("Think")
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["t1", "t2"]
