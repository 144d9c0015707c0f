"""What the tests of Anthropic's dialect build their cases from, and what its official client makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from anthropic.lib.streaming._beta_messages import accumulate_event as accumulate_beta
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage
from pydantic import BaseModel, TypeAdapter

from gateway.dialects.streams import sse

EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
TOOL = {"name": "weather", "description": "Of a city.", "input_schema": {"type": "object", "properties": {}}}
PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}


def said_in(stream: bytes) -> Iterator[tuple[bytes, Any]]:
    """Name and data of every event."""
    for one in sse.events(stream):
        name, data = sse.fields(one)
        if data:
            yield name, orjson.loads(data)


def accumulated(stream: bytes) -> Message:
    """What the official client puts together, with its strictest look at every event; the beta one must agree."""
    snapshot: Any = None
    beta: Any = None
    buffers: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
    for name, said in said_in(stream):
        assert name.decode() == said["type"]
        if name == b"ping":
            continue
        event = EVENTS.validate_python(said, strict=True)
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers[0])
        beta = accumulate_beta(event=said, current_snapshot=beta, json_bufs=buffers[1], request_headers={})  # type: ignore[arg-type]
    message = strict(Message, plainly(snapshot))
    assert isinstance(message, Message)
    assert plainly(strict(BetaMessage, plainly(beta))).items() >= {"id": message.id, "model": message.model}.items()
    assert plainly(beta)["content"] == plainly(message)["content"]
    return message


def plainly(model: BaseModel) -> dict[str, Any]:
    """As the JSON that it may have come from: what is null is left out."""
    found: dict[str, Any] = orjson.loads(
        model.model_dump_json(exclude_none=True, exclude={"content": {"__all__": {"parsed_output"}}})
    )
    return found


def strict(kind: type[BaseModel], said: bytes | dict[str, Any]) -> BaseModel:
    """Validated without any leniency, and without a field that the official client does not know."""
    body = said if isinstance(said, bytes) else orjson.dumps(said)
    model = kind.model_validate_json(body, strict=True)
    assert not list(_unknown(model)), model
    return model


def _unknown(model: Any) -> Iterator[str]:
    if isinstance(model, list):
        for item in model:
            yield from _unknown(item)
    elif isinstance(model, BaseModel):
        yield from model.model_extra or ()
        for name in type(model).model_fields:
            yield from _unknown(getattr(model, name))


def well_formed(stream: bytes) -> None:
    """One message, one block at a time, with indexes that count up, and the end at the end."""
    kinds = [said for _, said in said_in(stream)]
    assert [said["type"] for said in kinds[:2]] == ["message_start", "ping"]
    assert kinds[0]["message"]["usage"]["input_tokens"] > 0
    assert [said["type"] for said in kinds[-2:]] == ["message_delta", "message_stop"]
    opened, count = False, 0
    for said in kinds[2:-2]:
        assert said["index"] == count
        assert opened is (said["type"] != "content_block_start")
        opened = said["type"] != "content_block_stop"
        count += not opened
    assert not opened
