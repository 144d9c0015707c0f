"""What a response reports beside its text."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.openai_responses.usage import fees_of, reported, so_far
from gateway.dialects.translate.chat_to_responses.translator import ChatToResponses
from gateway.domain.money.usage import Usage
from tests.dialects.samples import streaming


def done(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "status": "completed", **fields}


@pytest.mark.parametrize(
    ("output", "fees"),
    [
        ([], ()),
        (None, ()),
        (["odd", None], ()),
        ([done("message"), done("function_call")], ()),
        ([done("web_search_call"), done("web_search_call")], (("web_search", 2),)),
        ([{**done("web_search_call"), "status": "failed"}], ()),
        ([done("web_search_call", action={"type": "open_page"})], ()),
        (
            [done("code_interpreter_call", container_id="a"), done("code_interpreter_call", container_id="b")],
            (("code_execution", 2),),
        ),
        (
            [done("code_interpreter_call", container_id="a"), done("code_interpreter_call", container_id="a")],
            (("code_execution", 1),),
        ),
        ([done("image_generation_call"), done("file_search_call")], (("file_search", 1), ("image_generation", 1))),
    ],
)
def test_only_what_was_completed_is_charged(output: Any, fees: Any) -> None:
    assert fees_of(output) == fees


def test_items_that_ended_count_where_the_response_lists_none() -> None:
    usage = {"input_tokens": 3, "output_tokens": 1}
    assert reported({"usage": usage}, [done("web_search_call")]) == Usage(3, output_tokens=1, fees=(("web_search", 1),))
    listed = {"usage": usage, "output": [done("web_search_call")]}
    assert reported(listed, [done("web_search_call")] * 2) == Usage(3, output_tokens=1, fees=(("web_search", 1),))


def test_a_response_under_way_is_known_by_its_tier_and_its_tools() -> None:
    assert so_far({}, []) is None
    assert so_far({"service_tier": "default", "usage": None}, []) is None
    assert so_far({"service_tier": "flex"}, [done("web_search_call")]) == Usage(
        service_tier="flex", fees=(("web_search", 1),)
    )


def test_a_chat_client_of_responses_that_leaves_has_used_the_tools_that_were_completed() -> None:
    reader = ChatToResponses().reader(streaming())
    created = {"type": "response.created", "response": {"id": "r", "service_tier": "priority", "usage": None}}
    item = {"type": "response.output_item.done", "output_index": 0, "item": done("web_search_call")}
    delta = {"type": "response.output_text.delta", "delta": "word"}
    for said in (created, item, delta):
        reader.feed(b"event: %b\ndata: %b\n\n" % (said["type"].encode(), orjson.dumps(said)))
    assert reader.usage is None
    assert reader.reported == Usage(service_tier="priority", fees=(("web_search", 1),))
