"""Translates between two dialects in two steps: from the first dialect to OpenAI chat, and from OpenAI chat to the
second dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import orjson

from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import shown
from gateway.dialects.base import StreamReader, Translator
from gateway.dialects.openai_chat.chunks import ChatChunks
from gateway.dialects.openai_chat.content_parts import flattened
from gateway.dialects.openai_chat.foreign_fields import plain_chat
from gateway.dialects.openai_chat.request import WANTED
from gateway.dialects.requests.fields import check
from gateway.dialects.streams import sse
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage, BackendRefused, BadRequest


class Writer(Protocol):
    """Writes the events of one stream to the client. The inputs are chat chunks."""

    def write(self, chunk: dict[str, Any]) -> bytes:
        """Convert `chunk`, a parsed `chat.completion.chunk` that has choices, to events of the client's dialect. May
        return nothing."""
        ...

    def more(self, texts: list[str]) -> bytes | None:
        """The events for several chunks, each of which differs from the chunk before it only in its content. `texts`:
        these contents. There is at least one, and none is empty.

        Returns None, and leaves the writer unchanged, if the chunks must be written one by one.
        """
        ...

    def end(self, finish: str, usage: Usage | None) -> bytes:
        """The last events of a complete answer, including the terminating event. `finish`: the finish reason in
        OpenAI's terms."""
        ...

    def whole(self) -> bytes | None:
        """The plain body, if the dialect's last event contains the whole answer; else None. Call it after `end`."""
        ...


class Translation(Protocol):
    """Converts between a client's dialect and OpenAI chat. Here, chat also has the fields `reasoning_content`,
    `thinking_blocks` and `cache_control`."""

    client: DialectName
    fields: Mapping[str, str]
    """Name of a chat field → name of the client's field, for error messages."""

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        """The whole chat body, without stream options. `plan`: turns to remove or shorten, by their `index`. Raises
        BadRequest with a client's field that chat cannot express."""
        ...

    def plain(self, request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> bytes:
        """Convert a chat completion to the client's plain body."""
        ...

    def writer(self, request: CompletionRequest) -> Writer: ...


class ViaChat:
    """Implements `Translator` with two parts. `translation` translates between the client's dialect and chat. `inner`
    translates between chat and the backend's dialect."""

    def __init__(
        self, translation: Translation, inner: Translator, *, thinks: bool = True, obfuscates: bool = False
    ) -> None:
        """`thinks`: the backend accepts a reasoning effort. `obfuscates`: the backend adds random texts to its events
        unless the request declines them."""
        self._translation, self._inner, self._thinks, self._obfuscates = translation, inner, thinks, obfuscates
        self.client, self.backend = translation.client, inner.backend

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        if plan is None or not plan.touched:
            chat = self._as_chat(request)
        else:  # this plan may keep more turns than an earlier plan, so the result is not cached
            chat = self._chat_request(request, self._translation.chat(request, plan))
        body = chat.body
        if not self._thinks and _EFFORT in body:
            body = {name: value for name, value in body.items() if name != _EFFORT}
        if self._obfuscates and request.stream:  # the client does not get these texts
            body = {**body, "stream_options": {**body["stream_options"], "include_obfuscation": False}}
        if body is not chat.body:  # the chat request itself may be sent to other backends later
            chat = replace(chat, body=body, raw=orjson.dumps(body))
        try:
            marks = ContextPlan(0, 0, marks=plan.marks) if plan is not None and plan.marks is not None else None
            return self._inner.body(chat, model, marks, logprobs=logprobs, max_output_tokens=max_output_tokens)
        except BadRequest as error:
            raise self._rename_field(error) from None

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        return self._inner.headers(self._as_chat(request))

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        return self._inner.forwarded(self._as_chat(request))

    def reader(self, request: CompletionRequest) -> StreamReader:
        inner = self._inner.reader(self._as_chat(request))
        return Translated(inner, self._translation, request)

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        chat = self._inner.plain(self._as_chat(request), body)
        try:
            choices = [{**choice, "message": flattened(choice["message"])} for choice in chat.choices]
            completion = {**orjson.loads(chat.body), "choices": choices}
            translated = self._translation.plain(request, completion, shown(chat.usage))
        except _ODD as error:
            raise BackendGarbage("The backend's answer has a part that is not one of a chat completion.") from error
        return Plain(translated, chat.usage, chat.finish, chat.confidence, choices)

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return self._rename_field(self._inner.refusal(status, body, backend))

    def _rename_field(self, error: Error) -> Error:
        """If `error` names a field of chat, change it to name the corresponding field of the client's dialect."""
        chats = _FIELD.match(error.param or "")
        if chats and (clients := self._translation.fields.get(chats[0])):
            error.param = clients
            error.message = re.sub(rf"\b{chats[0]}\b", clients, error.message, count=1)
        return error

    def _as_chat(self, request: CompletionRequest) -> CompletionRequest:
        if request.as_chat is None:
            request.as_chat = self._chat_request(request, self._translation.chat(request, None))
        return request.as_chat

    def _chat_request(self, request: CompletionRequest, body: dict[str, Any]) -> CompletionRequest:
        if request.stream:
            body["stream_options"] = {"include_usage": True}
        if self._inner.backend == "openai_chat":
            body = plain_chat(body)
        try:
            check(body, WANTED)
        except BadRequest as error:
            raise self._rename_field(error) from None
        return CompletionRequest(
            id=request.id,
            dialect="openai_chat",
            raw=orjson.dumps(body),
            body=body,
            model=request.model,
            turns=request.turns,
            stream=request.stream,
            max_output_tokens=request.max_output_tokens,
            temperature=body.get("temperature"),
            needs=request.needs,
            wants_usage=request.stream,
            controls=request.controls,
            headers={name: value for name, value in request.headers.items() if name in _TRACES},
            parallel=request.parallel,
        )


Error = TypeVar("Error", BadRequest, BackendRefused)
_FIELD = re.compile(r"\w+")
_EFFORT = "reasoning_effort"
_ODD = (ValueError, TypeError, LookupError, AttributeError)
"""Errors that occur if a part of an answer does not have the form that chat completions prescribe."""
_TRACES = frozenset({b"traceparent", b"tracestate", b"x-client-request-id"})
"""Names of headers that have the same meaning in every dialect."""


class Translated:
    """Implements `StreamReader`: converts the output of another reader to the client's dialect."""

    def __init__(self, inner: StreamReader, translation: Translation, request: CompletionRequest) -> None:
        self._inner, self._translation, self._request = inner, translation, request
        self._writer = translation.writer(request)
        self._chunks = ChatChunks()
        self._failure: BackendGarbage | None = None
        self._cut = False
        self.ending = b""

    @property
    def usage(self) -> Usage | None:
        return self._inner.usage

    @property
    def reported(self) -> Usage | None:
        return self._inner.reported

    @property
    def finish(self) -> str:
        return self._inner.finish

    @property
    def ended(self) -> bool:
        return self._inner.ended

    @property
    def chunks(self) -> int:
        return self._inner.chunks

    @property
    def silent(self) -> int:
        return self._inner.silent

    @property
    def confidence(self) -> float | None:
        return self._inner.confidence

    def feed(self, data: bytes) -> bytes:
        if self._failure:
            raise self._failure
        events = self._inner.feed(data)
        if self._cut:
            return b""
        if chunk := self._chunks.again(events):
            return self._writer.write(chunk)
        written = self._written(events)
        if self._failure and not written:
            raise self._failure
        return written

    def _written(self, events: bytes) -> bytes:
        """Convert the chunks in `events`. If an event is not a chunk, the event is stored as the failure of the
        stream."""
        written: list[bytes] = []
        at, returns = 0, b"\r" in events
        try:
            while at < len(events):
                end, texts = self._chunks.texts(events, at)
                if texts:
                    written.append(self._more(texts))
                else:
                    end = sse.next_boundary(events, at, returns)
                    if chunk := self._chunks.read(events[at:end]):
                        written.append(self._writer.write(chunk))
                at = end
        except _ODD:
            self._failure = BackendGarbage("The backend sent an event that is not a chunk of its answer.")
        return b"".join(written)

    def _more(self, texts: list[str]) -> bytes:
        """Convert several chunks that differ only in their content. `texts`: these contents."""
        writer, said = self._writer, [text for text in texts if text]
        written = writer.more(said) if said else b""
        if written is None:
            return b"".join([writer.write(self._chunks.with_text(text)) for text in said])
        return written

    def eof(self) -> None:
        """End the stream, and write its last events. They cannot be written earlier: only the end shows that the answer
        is complete."""
        if self._failure:
            raise self._failure
        self._inner.eof()
        last = self._written(self._inner.ending)
        if self._failure:
            raise self._failure
        self.ending = last + self._writer.end(self._inner.finish, shown(self._inner.usage))

    def cut(self, delivered: Usage) -> bytes | None:
        if (events := self._inner.cut(delivered)) is None:
            return None
        self._cut = True
        return self._written(events) + self._writer.end("length", delivered)

    def completion(self) -> bytes | None:
        if (whole := self._writer.whole()) is not None:
            return whole
        if (chat := self._inner.completion()) is None:
            return None
        try:
            return self._translation.plain(self._request, orjson.loads(chat), shown(self.usage))
        except _ODD:
            return None

    def delivered_text(self) -> str:
        return self._inner.delivered_text()

    def delivered_characters(self) -> int:
        return self._inner.delivered_characters()

    @property
    def most_characters(self) -> int:
        return self._inner.most_characters
