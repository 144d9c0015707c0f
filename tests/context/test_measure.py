from __future__ import annotations

from gateway.context import measure
from gateway.context.count import Counter
from tests.context.conftest import request_of, turn

TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks at a place in the list of things."}}]


async def test_images_calls_and_tool_declarations_count(counter: Counter) -> None:
    bare = await measure.sizes(request_of([turn("user", "hello")]), counter, "o200k_base")
    assert bare.total == 1 + measure.TURN_TOKENS + measure.REQUEST_TOKENS
    seen = await measure.sizes(request_of([turn("user", "hello", images=2)]), counter, "o200k_base")
    assert seen.total == bare.total + 2 * measure.IMAGE_TOKENS
    told = await measure.sizes(request_of([turn("user", "hello")], tools=TOOLS), counter, "o200k_base")
    assert told.total > bare.total + 10
    called = await measure.sizes(request_of([turn("assistant", "hello", calls=["a"])]), counter, "o200k_base")
    assert called.turns[0] > bare.turns[0] + 10
    assert called.texts == [1]


def test_tool_use_blocks_of_the_other_dialect_count_too() -> None:
    request = request_of([turn("assistant", "hello", calls=["a"])])
    request.body["messages"][0] = {
        "role": "assistant",
        "content": [{"type": "text", "text": "hello"}, {"type": "tool_use", "id": "a", "name": "look", "input": {}}],
    }
    assert '"tool_use"' in measure.calls(request, request.turns[0])
    assert '"text"' not in measure.calls(request, request.turns[0])


def test_a_request_is_guessed_once() -> None:
    request = request_of([turn("user", "hello there")])
    first = measure.estimated(request)
    request.turns[0].text = "much longer " * 1000
    assert measure.estimated(request) == first == request.estimated_tokens
