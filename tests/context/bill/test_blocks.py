"""Bodies as blocks."""

from __future__ import annotations

from typing import Any

from gateway.context.bill.blocks import BlockReader

MARK = {"type": "ephemeral"}


def reader() -> BlockReader:
    return BlockReader(lambda text: len(text.split()), 2.0)


def body(content: Any, **head: Any) -> dict[str, Any]:
    return {"model": "m", **head, "messages": [{"role": "user", "content": content}]}


def test_tools_stand_before_the_system_prompt_and_messages() -> None:
    tool = {"name": "read", "input_schema": {"type": "object"}}
    found = reader().read(body("one two", tools=[tool], system="three four five"))
    assert [block.tokens for block in found] == [2, 8, 12]


def test_what_the_recording_lacks_is_a_block_before_all_others() -> None:
    assert [block.tokens for block in reader().read(body("one"), hidden_tokens=700)] == [700, 702]


def test_a_mark_is_read_and_changes_no_digest() -> None:
    plain = reader().read(body([{"type": "text", "text": "one"}]))
    marked = reader().read(body([{"type": "text", "text": "one", "cache_control": MARK}]))
    long = reader().read(body([{"type": "text", "text": "one", "cache_control": {**MARK, "ttl": "1h"}}]))
    assert [plain[0].ttl_s, marked[0].ttl_s, long[0].ttl_s] == [0.0, 300.0, 3600.0]
    assert plain[0].digest == marked[0].digest == long[0].digest


def test_a_text_in_an_array_is_another_block_than_the_text() -> None:
    assert reader().read(body("one"))[0].digest != reader().read(body([{"type": "text", "text": "one"}]))[0].digest


def test_a_digest_is_of_everything_before_it() -> None:
    one = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    other = [{"type": "text", "text": "other"}, {"type": "text", "text": "two"}]
    assert reader().read(body(one))[1].digest != reader().read(body(other))[1].digest


def test_chat_messages_with_tool_calls_and_results_are_counted() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "one two three"},
    ]
    found = reader().read({"model": "m", "messages": messages})
    assert [block.tokens for block in found] == [2, 6, 6, 12]


def test_images_count_the_usual_tokens_and_signatures_none() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "x" * 4000}}
    thinking = {"type": "thinking", "thinking": "deep thought", "signature": "s" * 4000}
    assert [block.tokens for block in reader().read(body([picture, thinking]))] == [3000, 3004]
