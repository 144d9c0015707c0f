"""OpenAI chat over Anthropic, with what is sent and what is answered checked against the SDKs' own types."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

import orjson
from anthropic.types import message_create_params
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.dialects.translate.chat_to_messages.translator import ChatToMessages
from gateway.domain.routing.route import ContextPlan
from tests.dialects.sdk_types import misfits, unknown
from tests.support.requests import chat_request

Model = TypeVar("Model", ChatCompletion, ChatCompletionChunk)

wire = ChatToMessages(clock=lambda: 1_700_000_000.5)
SAMPLING = ("temperature", "top_p", "top_k")
"""What older models take, which the SDK has no name for any more."""
EXTENSIONS = ("reasoning_content", "thinking_blocks", "stop_reason")
"""What an answer has beside what OpenAI's have, under names that other servers have given it."""


def sent(
    request: Any = None,
    plan: ContextPlan | None = None,
    *,
    model: str = "claude",
    strange: Collection[str] = (),
    **fields: Any,
) -> dict[str, Any]:
    """The body, which is one of Anthropic's but for top-level fields that are `strange`."""
    body: dict[str, Any] = orjson.loads(wire.body(request or chat_request(**fields), model, plan))
    known = {name: value for name, value in body.items() if name not in SAMPLING and name not in strange}
    kinds = message_create_params
    kind = kinds.MessageCreateParamsStreaming if body.get("stream") else kinds.MessageCreateParamsNonStreaming
    assert misfits(known, kind) == []
    return body


def answered(message: dict[str, Any] | bytes) -> ChatCompletion:
    """What the client gets of an Anthropic message."""
    plain = wire.plain(chat_request(), message if isinstance(message, bytes) else orjson.dumps(message))
    return checked(ChatCompletion.model_validate_json(plain.body, strict=True))


def checked(model: Model) -> Model:
    """`model`, which has no fields but OpenAI's and the extensions."""
    strange = [name for name in unknown(model) if name.rpartition(".")[2] not in EXTENSIONS]
    assert strange == []
    return model


def message(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A whole answer of Anthropic's."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": list(blocks),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 5},
        **more,
    }
