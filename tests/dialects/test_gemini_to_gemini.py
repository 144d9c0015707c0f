"""Gemini's clients over Gemini: everything that the client sends arrives, and the answer passes unchanged."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.canonical import canonical
from gateway.dialects.clients import DIALECTS, at
from gateway.dialects.registry import wire
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage, BadRequest, StreamBroken

WIRE = wire("gemini_generate", "gemini_generate")
HELLO = [{"role": "user", "parts": [{"text": "hello"}]}]
SIGNED = {"functionCall": {"id": "fc1", "name": "look", "args": {"at": 1}}, "thoughtSignature": "c2ln"}
COUNTS = {
    "promptTokenCount": 14,
    "cachedContentTokenCount": 5,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 3,
    "totalTokenCount": 21,
}
COUNTED = Usage(input_tokens=9, cached_tokens=5, output_tokens=4, reasoning_tokens=3)


def asked(contents: Any = None, method: str = "generateContent", **fields: Any) -> CompletionRequest:
    dialect = at(f"/v1beta/models/auto:{method}")
    assert dialect is not None
    return dialect.parse(orjson.dumps({"contents": contents or HELLO, **fields}), "req_7", Controls(), {})


def sent(
    request: CompletionRequest, plan: ContextPlan | None = None, model: str = "gemini-3-pro", **more: Any
) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(WIRE.body(request, model, plan, **more))
    return found


OWN = {
    "contents": [
        {
            "role": "user",
            "parts": [
                {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}, "videoMetadata": {"fps": 2}},
                {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
            ],
        },
        {"role": "model", "parts": [{"text": "ok", "thoughtSignature": "dGV4dA=="}, SIGNED]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "fc1",
                        "name": "look",
                        "response": {"ok": 1},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
                    }
                }
            ],
        },
    ],
    "systemInstruction": {"parts": [{"text": "Be brief"}]},
    "tools": [{"functionDeclarations": [{"name": "look", "parameters": {"type": "OBJECT", "nullable": True}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "labels": {"my_team": "b"},
    "generationConfig": {
        "topK": 5,
        "candidateCount": 2,
        "mediaResolution": "MEDIA_RESOLUTION_LOW",
        "responseMimeType": "text/x.enum",
        "responseSchema": {"type": "STRING", "enum": ["a", "b"], "propertyOrdering": ["a"]},
        "thinkingConfig": {"thinkingBudget": 2000},
    },
}


def test_nothing_is_lost_or_changed() -> None:
    assert sent(asked(**OWN)) == OWN


def test_the_gateways_output_limit_replaces_the_clients() -> None:
    request = asked(generationConfig={"maxOutputTokens": 900, "topK": 5})
    assert sent(request, max_output_tokens=9)["generationConfig"] == {"maxOutputTokens": 9, "topK": 5}


def test_one_content_and_a_plain_system_instruction_are_accepted() -> None:
    request = asked({"parts": [{"text": "hello"}]}, systemInstruction="Be brief")
    assert sent(request)["contents"] == [{"parts": [{"text": "hello"}]}]
    assert sent(request)["systemInstruction"] == {"parts": [{"text": "Be brief"}]}


@pytest.mark.parametrize(("model", "marked"), [("gemini-3-pro", True), ("gemini-2.5-flash", False)])
def test_a_call_of_another_model_is_marked_where_that_is_needed(model: str, marked: bool) -> None:
    calls = [{"functionCall": {"id": f"call_{name}", "name": name, "args": {}}} for name in ("f", "g")]
    parts = sent(asked([*HELLO, {"role": "model", "parts": calls}]), model=model)["contents"][1]["parts"]
    assert parts[1] == {"functionCall": {"name": "g", "args": {}}}
    assert [part.get("thoughtSignature") for part in parts] == [
        "skip_thought_signature_validator" if marked else None,
        None,
    ]


def test_trimmed_messages_are_left_out_or_shortened() -> None:
    responses = [{"functionResponse": {"name": "look", "response": {"a": n}}} for n in (1, 2)]
    contents = [
        *({"role": "user", "parts": [{"text": "old"}]}, {"role": "model", "parts": [{"text": "older"}]}),
        {"role": "user", "parts": [{"text": "look"}]},
        {"role": "model", "parts": [SIGNED, {"functionCall": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [{"text": "now"}, {"text": "then"}, *responses]},
    ]
    request = asked(contents, systemInstruction={"parts": [{"text": "Be brief"}]})
    plan = ContextPlan(0, 0, drop=frozenset({1, 2}), replace={5: "short", 7: "cut"})
    body = sent(request, plan)
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief"}]}
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user"]
    assert body["contents"][2]["parts"] == [
        {"functionResponse": {"name": "look", "response": {"result": "short"}}},
        responses[1],
        {"text": "cut"},
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"safetySettings": OWN["safetySettings"]},
        {"generationConfig": {"topK": 5}},
        {"generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW"}},
        {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
        {"contents": [{"role": "user", "parts": [{"text": "hello", "mediaResolution": {"level": "LOW"}}]}]},
    ],
)
def test_requests_that_gemini_answers_differently_share_no_answer(fields: dict[str, Any]) -> None:
    assert canonical(asked(**{"contents": None, **fields})) != canonical(asked())


def test_over_another_backend_a_form_that_it_lacks_is_refused_and_the_rest_is_left_out() -> None:
    other = wire("gemini_generate", "openai_chat")
    with pytest.raises(BadRequest) as refused:
        other.body(asked(generationConfig={"responseMimeType": "text/x.enum"}), "m", None)
    assert refused.value.param == "generationConfig.responseMimeType"
    request = asked(safetySettings=OWN["safetySettings"], generationConfig={"mediaResolution": "X"})
    assert orjson.loads(other.body(request, "m", None)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
    }


def test_over_another_backend_pictures_in_a_result_follow_it() -> None:
    messages = orjson.loads(wire("gemini_generate", "openai_chat").body(asked(OWN["contents"]), "m", None))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert messages[3]["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


def test_null_is_allowed_beside_alternatives_and_listed_values() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "n": {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}], "nullable": True},
            "e": {"type": "STRING", "enum": ["a"], "nullable": True},
        },
    }
    tool = {"functionDeclarations": [{"name": "f", "parameters": schema}]}
    assert asked(tools=[tool]).body["tools"][0]["function"]["parameters"]["properties"] == {
        "n": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        "e": {"type": ["string", "null"], "enum": ["a", None]},
    }


ANSWER = {
    "candidates": [
        {
            "content": {"role": "model", "parts": [{"text": "ok", "thoughtSignature": "dGV4dA=="}, SIGNED]},
            "finishReason": "STOP",
            "index": 0,
            "groundingMetadata": {"webSearchQueries": ["x"]},
        },
        {"content": {"parts": [{"text": "no"}]}, "finishReason": "MAX_TOKENS", "index": 1},
    ],
    "usageMetadata": COUNTS,
    "modelVersion": "gemini-3-pro",
}


def test_an_answer_passes_with_all_its_candidates() -> None:
    body = orjson.dumps(ANSWER)
    plain = WIRE.plain(asked(), body)
    assert (plain.body, plain.usage, plain.finish) == (body, COUNTED, "tool_calls")
    assert [choice["message"]["content"] for choice in plain.choices] == ["ok", "no"]
    with pytest.raises(BackendGarbage):
        WIRE.plain(asked(), b"{}")


def event(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def candidate(*parts: Any, **more: Any) -> bytes:
    content = {"role": "model", "parts": [*parts]}
    return event({"candidates": [{"content": content, "index": 0, **more}], **BESIDE})


BESIDE = {"usageMetadata": COUNTS, "responseId": "r1"}
PIECES = [
    candidate({"text": "h", "thought": True}),
    candidate({"text": "m", "thought": True}),
    candidate({"text": "o"}),
    candidate({"text": "k"}),
    candidate(SIGNED),
    candidate({"text": "", "thoughtSignature": "bGFzdA=="}, finishReason="STOP"),
]


def test_a_stream_passes_and_its_end_waits_for_the_booking() -> None:
    reader = WIRE.reader(asked(method="streamGenerateContent"))
    assert b"".join(reader.feed(piece) for piece in PIECES) == b"".join(PIECES[:-1])
    reader.eof()
    assert (reader.ending, reader.usage, reader.finish, reader.ended) == (PIECES[-1], COUNTED, "tool_calls", True)
    whole = orjson.loads(reader.completion() or b"")
    assert whole["candidates"][0]["content"]["parts"] == [
        *({"text": "hm", "thought": True}, {"text": "ok"}, SIGNED),
        {"text": "", "thoughtSignature": "bGFzdA=="},
    ]
    assert (whole["usageMetadata"], whole["candidates"][0]["finishReason"]) == (COUNTS, "STOP")
    assert DIALECTS["gemini_generate"].choices(whole)[0]["message"]["content"] == "ok"


@pytest.mark.parametrize(
    "failed", [event({"error": {"code": 503, "message": "busy"}}), candidate({"text": "x"}, index="x")]
)
def test_what_arrived_together_before_a_failure_passes(failed: bytes) -> None:
    reader = WIRE.reader(asked(method="streamGenerateContent"))
    assert reader.feed(b"".join([*PIECES[2:4], failed, PIECES[2]])) == b"".join(PIECES[2:4])
    with pytest.raises((StreamBroken, BackendGarbage)):
        reader.feed(PIECES[2])


def test_a_stream_without_a_finish_reason_is_broken() -> None:
    reader = WIRE.reader(asked(method="streamGenerateContent"))
    assert reader.feed(PIECES[2])
    with pytest.raises(StreamBroken):
        reader.eof()


def test_a_stream_that_ends_without_its_last_blank_line_is_whole() -> None:
    reader = WIRE.reader(asked(method="streamGenerateContent"))
    reader.feed(PIECES[2] + PIECES[-1][:-1])
    reader.eof()
    assert reader.ending == PIECES[-1]


def test_a_stream_that_is_cut_ends_as_at_a_length_limit() -> None:
    reader = WIRE.reader(asked(method="streamGenerateContent"))
    reader.feed(PIECES[2])
    last = orjson.loads((reader.cut(COUNTED) or b"")[6:])
    assert (last["candidates"][0]["finishReason"], last["usageMetadata"]["candidatesTokenCount"]) == ("MAX_TOKENS", 4)


def test_a_blocked_prompt_passes_and_can_be_replayed() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": COUNTS}
    plain = WIRE.plain(asked(), orjson.dumps(blocked))
    assert plain.finish == "content_filter"
    reader = WIRE.reader(asked(method="streamGenerateContent"))
    reader.feed(event(blocked))
    reader.eof()
    assert (orjson.loads(reader.ending[6:]), orjson.loads(reader.completion() or b"")) == (blocked, blocked)
    rest, ending = DIALECTS["gemini_generate"].replayed(asked(), blocked)
    assert orjson.loads(ending[6:])["promptFeedback"] == blocked["promptFeedback"]
    assert rest
