from __future__ import annotations

import orjson
import pytest

from gateway.cache.keepable import keepable
from gateway.dialects.chat_assembly import MAX_BYTES
from tests.cache.conftest import Given, completion


def test_a_whole_answer_that_says_something_is_kept() -> None:
    assert keepable(Given(), "openai_chat") == completion()
    assert keepable(Given(finish="length"), "openai_chat") is not None


@pytest.mark.parametrize(
    "answer",
    [
        Given(complete=False),
        Given(finish="tool_calls"),
        Given(finish="content_filter"),
        Given(finish=""),
        Given(completion("")),
        Given(completion("  \n")),
        Given(completion(None)),
        Given(completion("x", refusal="I will not.")),
        Given(completion("x", tool_calls=[{"id": "1"}])),
        Given(completion("x", function_call={"name": "f"})),
        Given(completion("x" * MAX_BYTES)),
        Given(b"not json"),
        Given(b"[]"),
        Given(orjson.dumps({"choices": []})),
        Given(orjson.dumps({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]})),
    ],
)
def test_what_is_broken_empty_refused_or_asks_for_tools_is_not(answer: Given) -> None:
    assert keepable(answer, "openai_chat") is None
