"""Stored Responses told again."""

from __future__ import annotations

from typing import Any

from openai.types.responses import Response

from gateway.dialects.openai_responses.dialect import replayed
from tests.dialects.responses_samples import accumulate, final, responses_request, translation, types

BEGIN = ["created", "in_progress"]
TEXT = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
REFUSAL = ["content_part.added", "refusal.delta", "refusal.done", "content_part.done"]
SUMMARY = [
    "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
    "reasoning_summary_part.done",
]  # fmt: skip


def stored(message: dict[str, Any], finish: str = "stop", **fields: Any) -> Response:
    choice = {"message": message, "finish_reason": finish}
    completion = {"model": "m", "created": 1, "choices": [choice]}
    return Response.model_validate_json(translation.plain(responses_request(**fields), completion, None))


def test_a_stored_answer_is_told_again_with_an_id_of_its_own() -> None:
    message = {"content": "one two three " * 20, "reasoning_content": "hm", "refusal": "no"}
    kept = stored(message, metadata={"a": "1"})
    again = responses_request(stream=True, metadata={"a": "2"})
    again.id = "req_other"
    head, end = replayed(again, kept.model_dump(mode="json"))
    assert end.startswith(b"event: response.completed\n")
    assert b"response.completed" not in head
    seen = accumulate(head + end)
    assert (seen.id, seen.metadata) == ("resp_other", {"a": "2"})
    assert seen.output_text == kept.output_text
    item = ["output_item.added", "output_item.done"]
    assert types(head + end) == [
        *BEGIN, item[0], *SUMMARY, item[1], item[0], *TEXT, *REFUSAL, item[1], "completed",
    ]  # fmt: skip


def test_a_stored_call_and_an_incomplete_end_are_told_again() -> None:
    calls = [{"id": "call_1", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    kept = stored({"content": None, "tool_calls": calls}, "length")
    stream = b"".join(replayed(responses_request(stream=True), kept.model_dump(mode="json")))
    assert types(stream) == [
        *BEGIN, "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done", "incomplete",
    ]  # fmt: skip
    assert final(stream).output == kept.output


def test_items_of_any_other_kind_are_told_whole() -> None:
    body = stored({"content": "found it"}).model_dump(mode="json")
    search = {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    body["output"].insert(0, search)
    stream = b"".join(replayed(responses_request(stream=True), body))
    assert final(stream).output[0].model_dump(exclude_unset=True) == search
    assert types(stream)[2:4] == ["output_item.added", "output_item.done"]
