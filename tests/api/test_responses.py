"""Stored responses over HTTP: their input as OpenAI lists it."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from gateway.api.routes.responses import page, shown_items
from gateway.errors import BadRequest
from gateway.responses.store import StoredResponse

ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
QUESTION = {"role": "user", "content": "hi"}
NUMBERED = [{"id": str(number)} for number in range(5)]


def shown(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return shown_items(StoredResponse("resp_ab", "s", {"output": []}, list(items)))


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "hi"},
        {"role": "developer", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://a/b.png"}]},
        {"role": "assistant", "content": "hi"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "42"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "42"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "a"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "42"},
    ],
)
def test_every_item_is_shown_as_openai_does_and_keeps_its_id(item: dict[str, Any]) -> None:
    (one,) = shown(item)
    ITEM.validate_python(one)
    assert one["id"]
    assert (
        shown({"role": "user", "content": "before"}, item)[1]["id"] != shown({"role": "user", "content": "x"})[0]["id"]
    )
    assert shown(item)[0]["id"] == one["id"]


@pytest.mark.parametrize(
    ("asked", "ids", "more"),
    [
        ({}, "43210", False),
        ({"order": "asc"}, "01234", False),
        ({"limit": "2"}, "43", True),
        ({"limit": "2", "after": "3"}, "21", True),
        ({"limit": "2", "after": "1"}, "0", False),
        ({"order": "asc", "limit": "5"}, "01234", False),
        ({"after": "9"}, "", False),
    ],
)
def test_a_page_begins_after_an_item_and_tells_whether_there_are_more(
    asked: dict[str, str], ids: str, more: bool
) -> None:
    found = page(NUMBERED, asked)
    assert "".join(item["id"] for item in found["data"]) == ids
    assert found["has_more"] is more
    assert (found["first_id"], found["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))


@pytest.mark.parametrize("asked", [{"limit": "0"}, {"limit": "101"}, {"limit": "two"}, {"order": "up"}])
def test_a_page_that_makes_no_sense_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        page(NUMBERED, asked)
