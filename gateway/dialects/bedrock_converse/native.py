"""Translates between a Converse client and a Converse backend.

The request is translated through chat, and the client's additional fields for the model are added. The backend's
own answer is passed on.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import orjson

from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import shown
from gateway.dialects.base import StreamReader
from gateway.dialects.bedrock_converse.answer import as_messages, ended, reply
from gateway.dialects.bedrock_converse.event_stream import event, events
from gateway.dialects.bedrock_converse.request import EXTRAS
from gateway.dialects.translate.chat_to_converse.stream import ConverseStream
from gateway.dialects.translate.chat_to_converse.translator import ChatToConverse, name_of
from gateway.dialects.translate.messages_to_chat.tools import long_names
from gateway.dialects.via_chat import Translation, ViaChat
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan

_FIELD = "additionalModelRequestFields"


class ConverseToConverse(ViaChat):
    """Implements `Translator` for a Converse client with a Converse backend."""

    def __init__(self, translation: Translation) -> None:
        super().__init__(translation, ChatToConverse())

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        body = super().body(request, model, plan, logprobs=logprobs, max_output_tokens=max_output_tokens)
        if not (extras := request.body.get(EXTRAS)):
            return body
        found = orjson.loads(body)
        return orjson.dumps({**found, _FIELD: {**extras, **found.get(_FIELD, {})}})

    def reader(self, request: CompletionRequest) -> StreamReader:
        return super().reader(request) if _renames(request) else ConverseRelay(request)

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        if _renames(request):
            return super().plain(request, body)
        return replace(self._inner.plain(request, body), body=body)


def _renames(request: CompletionRequest) -> bool:
    """Whether the request has names of tools that are too long for chat. Then the names in the backend's answer are
    not the client's names.
    """
    return bool(long_names(as_messages(request).body))


class ConverseRelay(ConverseStream):
    """Implements `StreamReader` for a Converse client with a Converse backend. Passes the events on. Also reads the
    events as chat chunks, for the gateway's own use."""

    def __init__(self, request: CompletionRequest) -> None:
        super().__init__(wants_usage=True, created=0, name=name_of(request), model=request.model)
        self._request = request
        self._passed: list[dict[str, Any]] = []
        """The events of the current read that are sent to the client."""
        self._held: list[dict[str, Any]] = []
        """The events from the stop reason on. They are sent when the cost has been booked."""
        self._last: dict[str, Any] = {}
        """The last event that was sent."""

    def _relay(self, block: bytes) -> bytes:
        super()._relay(block)
        passed, self._passed = self._passed, []
        if passed:
            self._last = passed[-1]
        if self.ended:
            self.ending = _framed(self._held)
        return _framed(passed)

    def _take(self, parsed: Any) -> bytes:
        over = self.ended or self._failure
        written = super()._take(parsed)
        if not (over or self._failure or self._faulty):
            (self._held if self.finish else self._passed).append(parsed)
        return written

    def _texts(self, values: list[dict[str, Any]], start: int) -> list[str]:
        texts = super()._texts(values, start)
        self._passed += values[start : start + len(texts)]
        return texts

    def cut(self, delivered: Usage) -> bytes:
        started = b"" if self._last else event("messageStart", {"role": "assistant"})
        value: dict[str, Any] = next(iter(self._last.values()), {})
        is_open = "contentBlockIndex" in value and "contentBlockStop" not in self._last
        stop = event("contentBlockStop", {"contentBlockIndex": value["contentBlockIndex"]}) if is_open else b""
        return started + stop + ended(self._request, "max_tokens", delivered)

    def completion(self) -> bytes | None:
        chat = super().completion()
        return None if chat is None else orjson.dumps(reply(self._request, orjson.loads(chat), shown(self.usage)))


def _framed(parsed: list[dict[str, Any]]) -> bytes:
    """The bytes of events. Each event is an object with one key, the type of the event."""
    kinds = groupby(parsed, lambda each: next(iter(each)))
    return b"".join([events(kind, [orjson.dumps(each[kind]) for each in group]) for kind, group in kinds])
