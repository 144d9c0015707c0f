"""Translates between an Ollama client and an Ollama backend: the client's own fields and the backend's own lines
are passed on.
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.answers.plain import Plain
from gateway.dialects.ollama_chat.answer import line, on_one_line, reply, stop_at
from gateway.dialects.ollama_chat.request import OWN
from gateway.dialects.openai_chat.message import mean_probability
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.streams import sse
from gateway.dialects.translate.chat_to_ollama.reply import choice, usage
from gateway.dialects.translate.chat_to_ollama.stream import OllamaStream
from gateway.dialects.translate.chat_to_ollama.translator import ChatToOllama, name_of
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan

_FROM_CHAT = frozenset({"model", "messages", "stream", "options"})
"""Fields that are written from the chat request, because the gateway may have changed them."""


class OllamaToOllama(ChatToOllama):
    """Implements `Translator` for an Ollama client with an Ollama backend."""

    client: DialectName = "ollama_chat"

    def fields(
        self, request: CompletionRequest, model: str, plan: ContextPlan | None, most: int | None
    ) -> dict[str, Any]:
        found = super().fields(request, model, plan, most)
        own: dict[str, Any] = request.echoed.get(OWN) or {}
        options = {**(own.get("options") or {}), **found["options"]}
        passed = {name: value for name, value in own.items() if name not in _FROM_CHAT and value is not None}
        return {**found, **passed, "options": options}

    def reader(self, request: CompletionRequest) -> OllamaRelay:
        return OllamaRelay(request, int(self._clock()))

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        answer = load_reply(body)
        found = choice(answer, name_of(request), "")
        confidence = mean_probability([found])
        if answer.pop("logprobs", None) is not None:  # only the gateway asks for them
            body = orjson.dumps(answer)
        return Plain(body, usage(answer), found["finish_reason"], confidence, [found])


class OllamaRelay(OllamaStream):
    """Implements `StreamReader` for an Ollama client with an Ollama backend. Passes the lines on. Also reads the lines
    as chat chunks, for the gateway's own use."""

    def __init__(self, request: CompletionRequest, created: int) -> None:
        super().__init__(
            wants_usage=True, wants_logprobs=False, created=created, name=name_of(request), model=request.model
        )
        self._request = request

    def _relay(self, block: bytes) -> bytes:
        passed = b""
        for event in sse.events(block):
            written = self._read(event)
            if written:
                self._transcript.keep(written)
            if self._failure:
                break
            data = sse.payload(event)
            if self.ended:
                self.ending = on_one_line(data)
                break
            passed += on_one_line(data) if data else b""
        return passed

    def cut(self, delivered: Usage) -> bytes:
        return line(stop_at(self._request, delivered))

    def completion(self) -> bytes | None:
        chat = super().completion()
        return None if chat is None else orjson.dumps(reply(self._request, orjson.loads(chat), self.usage))
