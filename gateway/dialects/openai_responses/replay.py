"""Replays a stored response, plain or as a stream, with an id of its own."""

from __future__ import annotations

import re
from typing import Any

from gateway.dialects.openai_responses.events import Events
from gateway.dialects.openai_responses.response_object import Ids, Item, repeated
from gateway.domain.request import CompletionRequest

_PIECE = re.compile(r"\s*(?:\S{1,40}\s*){1,15}|\s+")
"""Some twenty tokens."""
_EMPTY: dict[str, Item] = {"message": {"content": []}, "reasoning": {"summary": []}, "function_call": {"arguments": ""}}
"""What an item has not yet said when it is announced."""


def again(request: CompletionRequest, body: Item) -> Item:
    """A stored Response as the answer to another request: with an id of its own, and what it repeats of its request."""
    return {**body, "id": Ids(request.id).response, **repeated(request)}


def response_stream(request: CompletionRequest, body: Item) -> tuple[bytes, bytes]:
    """All events but the terminating one, and that one."""
    whole = again(request, body)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    begun.pop("completed_at", None)
    events = Events()
    told = [events.event(f"response.{what}", response=begun) for what in ("created", "in_progress")]
    for item in body["output"]:
        if type(item) is dict:
            told += _item(events, item)
    status = "incomplete" if body.get("status") == "incomplete" else "completed"
    return b"".join(told), events.event(f"response.{status}", response=whole)


def _item(events: Events, item: Item) -> list[bytes]:
    kind = item.get("type")
    place = events.place({**item, **(_EMPTY.get(kind, {}) if type(kind) is str else {}), "status": "in_progress"})
    where = {"item_id": item.get("id"), "output_index": place}
    told = [events.added(place)]
    if kind == "message":
        for number, part in _dicts(item.get("content")):
            told += _part(events, {**where, "content_index": number}, part)
    elif kind == "reasoning":
        for number, part in _dicts(item.get("summary")):
            told += _summary(events, {**where, "summary_index": number}, part)
    elif kind == "function_call":
        arguments = _text(item, "arguments")
        told += _pieces(events, "response.function_call_arguments", where, arguments)
        done = "response.function_call_arguments.done"
        told.append(events.event(done, **where, arguments=arguments, name=item.get("name")))
    return [*told, events.done(place, item)]


def _dicts(parts: object) -> list[tuple[int, Item]]:
    """Numbered; a backend may have put anything there."""
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
