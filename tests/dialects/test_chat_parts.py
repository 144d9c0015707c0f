from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.clients import DIALECTS
from gateway.dialects.openai_chat.content_parts import flattened
from gateway.dialects.registry import wire
from gateway.domain.request import CompletionRequest, DialectName
from tests.dialects.samples import DONE, STOP, chunk, read
from tests.support.requests import request_in

THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}, {"type": "text", "text": "m."}]}
PARTS = [
    THOUGHT,
    {"type": "text", "text": "Ho"},
    {"type": "reference", "reference_ids": [1]},
    {"type": "text", "text": "la"},
]
THINKS: dict[DialectName, dict[str, Any]] = {
    "openai_responses": {},
    "anthropic_messages": {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}},
}
"""Client dialect → fields of a request that wants to see the thinking."""


def test_parts_become_text_and_thinking() -> None:
    assert flattened({"role": "assistant", "content": PARTS}) == {
        "role": "assistant", "content": "Hola", "reasoning_content": "Hmm.",
    }  # fmt: skip
    assert flattened({"content": [{"type": "text", "text": "a"}]}) == {"content": "a"}
    for message in ({"content": "a"}, {"content": None, "refusal": "no"}, {}):
        assert flattened(message) is message


@pytest.mark.parametrize("content", [7, {"type": "text"}, True])
def test_other_content_is_an_error(content: object) -> None:
    with pytest.raises(TypeError):
        flattened({"content": content})


def thinking_request(client: DialectName, **fields: Any) -> CompletionRequest:
    return request_in(client, **THINKS[client], **fields)


def thinking_and_text(client: DialectName, body: bytes) -> tuple[str, str]:
    """Of a plain answer."""
    message = DIALECTS[client].choices(orjson.loads(body))[0]["message"]
    return message.get("reasoning_content", ""), message["content"]


@pytest.mark.parametrize("client", THINKS)
def test_other_clients_read_text_and_thinking(client: DialectName) -> None:
    way, message = wire(client, "openai_chat"), {"role": "assistant", "content": PARTS}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    plain = way.plain(
        thinking_request(client), orjson.dumps({"id": "c", "object": "chat.completion", "choices": [choice]})
    )
    assert thinking_and_text(client, plain.body) == ("Hmm.", "Hola")
    reader = way.reader(thinking_request(client, stream=True))
    read(reader, [b"".join(chunk({"content": [part]}) for part in PARTS) + STOP + DONE])
    assert thinking_and_text(client, reader.completion() or b"") == ("Hmm.", "Hola")
