"""Restores in a response the request fields that the backend did not get (`store`, `previous_response_id`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.openai_responses.relay import ResponsesRelay
from gateway.dialects.streams import sse

_RESPONSE = b'"response"'


def differs(told: Mapping[str, Any]) -> bool:
    """Does `told` say anything else than a backend that stores nothing and knows no earlier response?"""
    return bool(told.get("store") or told.get("previous_response_id"))


def retold(body: bytes, told: Mapping[str, Any], start: int = 0) -> bytes:
    """`body` with the Response object that begins at `start` saying what `told` says; keys it lacks stay away."""
    return json_splice.replace(
        body, [(span, orjson.dumps(told[key])) for key, span in json_splice.members(body, start) if key in told]
    )


class EchoRelay(ResponsesRelay):
    """As `ResponsesRelay`, but that every Response object in the events says what `told` says."""

    def __init__(self, told: Mapping[str, Any], *, wants_logprobs: bool = False) -> None:
        super().__init__(wants_logprobs=wants_logprobs)
        self._told = told

    def feed(self, data: bytes) -> bytes:
        relayed = super().feed(data)
        if _RESPONSE not in relayed:
            return relayed
        return b"".join(self._event(event) for event in sse.events(relayed))

    def _end(self, event: bytes, said: Any) -> None:
        super()._end(event, said)
        if self.ended:
            self.ending = self._event(event)

    def _event(self, event: bytes) -> bytes:
        at = event.find(b"{", event.find(b"data:"))
        if at < 0 or _RESPONSE not in event or event.count(b"data:", 0, at) != 1:
            return event
        for key, (start, _) in json_splice.members(event, at):
            if key == "response" and event[start : start + 1] == b"{":
                return retold(event, self._told, start)
        return event
