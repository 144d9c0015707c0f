"""Replays a stored response, plain or as a stream, with a new id."""

from __future__ import annotations

import re
from typing import Any

from gateway.dialects.openai_responses.events import Events
from gateway.dialects.openai_responses.response_object import Ids, Item, repeated
from gateway.domain.request import CompletionRequest

_PIECE = re.compile(r"\s*(?:\S{1,40}\s*){1,15}|\s+")
"""Matches a piece of text of about twenty tokens."""
_EMPTY: dict[str, Item] = {"message": {"content": []}, "reasoning": {"summary": []}, "function_call": {"arguments": ""}}
"""Type of an item → the fields that are empty in the event that announces the item."""


def again(request: CompletionRequest, body: Item) -> Item:
    """Convert a stored response to the answer to another request. The id, and the request fields that a response
    repeats, are replaced."""
    return {**body, "id": Ids(request.id).response, **repeated(request)}


def response_stream(request: CompletionRequest, body: Item) -> tuple[bytes, bytes]:
    """Convert a plain body to a stream. Returns two values: all events except the terminating event, and the
    terminating event."""
    whole = again(request, body)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    begun.pop("completed_at", None)
    events = Events()
    written = [events.event(f"response.{what}", response=begun) for what in ("created", "in_progress")]
    for item in body["output"]:
        if type(item) is dict:
            written += _item(events, item)
    status = "incomplete" if body.get("status") == "incomplete" else "completed"
    return b"".join(written), events.event(f"response.{status}", response=whole)


def _item(events: Events, item: Item) -> list[bytes]:
    kind = item.get("type")
    place = events.place({**item, **(_EMPTY.get(kind, {}) if type(kind) is str else {}), "status": "in_progress"})
    where = {"item_id": item.get("id"), "output_index": place}
    written = [events.added(place)]
    if kind == "message":
        for number, part in _dicts(item.get("content")):
            written += _part(events, {**where, "content_index": number}, part)
    elif kind == "reasoning":
        for number, part in _dicts(item.get("summary")):
            written += _summary(events, {**where, "summary_index": number}, part)
    elif kind == "function_call":
        arguments = _text(item, "arguments")
        written += _pieces(events, "response.function_call_arguments", where, arguments)
        done = "response.function_call_arguments.done"
        written.append(events.event(done, **where, arguments=arguments, name=item.get("name")))
    return [*written, events.done(place, item)]


def _dicts(parts: object) -> list[tuple[int, Item]]:
    """The objects in a list, with their indexes. Other values are ignored, because a backend may write any value."""
    return [(number, part) for number, part in enumerate(parts) if type(part) is dict] if type(parts) is list else []


def _text(part: Item, name: str) -> str:
    text = part.get(name)
    return text if type(text) is str else ""


def _pieces(events: Events, kind: str, where: dict[str, Any], text: str, **more: Any) -> list[bytes]:
    return [events.event(f"{kind}.delta", **where, delta=piece, **more) for piece in _PIECE.findall(text)]


def _part(events: Events, where: dict[str, Any], part: Item) -> list[bytes]:
    if part.get("type") == "refusal":
        kind, name, more = "response.refusal", "refusal", {}
    else:
        kind, name, more = "response.output_text", "text", {"logprobs": part.get("logprobs") or []}
    empty = {**part, name: ""} if name == "refusal" else {**part, name: "", "annotations": [], "logprobs": []}
    return [
        events.event("response.content_part.added", **where, part=empty),
        *_pieces(events, kind, where, _text(part, name), **{key: [] for key in more}),
        events.event(f"{kind}.done", **where, **{name: _text(part, name)}, **more),
        events.event("response.content_part.done", **where, part=part),
    ]


def _summary(events: Events, where: dict[str, Any], part: Item) -> list[bytes]:
    kind = "response.reasoning_summary_text"
    return [
        events.event("response.reasoning_summary_part.added", **where, part={**part, "text": ""}),
        *_pieces(events, kind, where, _text(part, "text")),
        events.event(f"{kind}.done", **where, text=_text(part, "text")),
        events.event("response.reasoning_summary_part.done", **where, part=part),
    ]
