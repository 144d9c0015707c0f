"""A response repeats some fields of its request. This module writes the client's own values into these fields.

This is needed for fields that were sent to the backend with another value or not at all (`store`,
`previous_response_id`, `instructions`, `tools`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.openai_responses.relay import ResponsesRelay
from gateway.dialects.streams import sse

_RESPONSE = b'"response"'


def differs(echoed: Mapping[str, Any]) -> bool:
    """Whether the backend's response has another value for a field in `echoed`.

    A backend writes that nothing is stored, and that there is no previous response. It also writes the instructions and
    tools that it got.
    """
    return bool(
        echoed.get("store")
        or echoed.get("previous_response_id")
        or not echoed.keys().isdisjoint(("instructions", "tools"))
    )


def with_echoed(body: bytes, echoed: Mapping[str, Any], start: int = 0) -> bytes:
    """Replace fields of the Response object at position `start` of `body` by those in `echoed`. Fields that the object
    lacks are not added."""
    return json_splice.replace(
        body, [(span, orjson.dumps(echoed[key])) for key, span in json_splice.members(body, start) if key in echoed]
    )


class EchoRelay(ResponsesRelay):
    """Like `ResponsesRelay`, but replaces fields in every Response object of the stream by their values in `echoed`."""

    def __init__(self, echoed: Mapping[str, Any], *, wants_logprobs: bool = False) -> None:
        super().__init__(wants_logprobs=wants_logprobs)
        self._echoed = echoed

    def feed(self, data: bytes) -> bytes:
        relayed = super().feed(data)
        if _RESPONSE not in relayed:
            return relayed
        return b"".join(self._event(event) for event in sse.events(relayed))

    def _end(self, event: bytes, parsed: Any) -> None:
        super()._end(event, parsed)
        if self.ended:
            self.ending = self._event(event)

    def _event(self, event: bytes) -> bytes:
        at = event.find(b"{", event.find(b"data:"))
        if at < 0 or _RESPONSE not in event or event.count(b"data:", 0, at) != 1:
            return event
        for key, (start, _) in json_splice.members(event, at):
            if key == "response" and event[start : start + 1] == b"{":
                return with_echoed(event, self._echoed, start)
        return event
