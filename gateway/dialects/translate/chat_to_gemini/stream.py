"""Translates `streamGenerateContent`'s events to chat chunks."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.answers.upstream_error import UpstreamError, broken, find_error
from gateway.dialects.answers.usage import shown
from gateway.dialects.openai_chat.object_reader import ObjectReader
from gateway.dialects.openai_chat.reader import DONE
from gateway.dialects.translate.chat_to_gemini.reply import (
    blocked,
    call,
    candidate,
    fault,
    finish_of,
    is_content,
    parts,
    usage,
)
from gateway.dialects.translate.chat_to_messages.reply import chat_usage
from gateway.domain.money.usage import Usage
from gateway.errors import BackendError, BackendGarbage

_KINDS = {"RESOURCE_EXHAUSTED": "rate_limit_error", "UNAVAILABLE": "overloaded_error"}


class GeminiStream(ObjectReader):
    """Implements `StreamReader` from Gemini to OpenAI chat. Gemini has no terminating event: a finish reason makes the
    answer complete."""

    def __init__(self, *, wants_usage: bool, created: int, name: str, model: str) -> None:
        shared = {"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "created": created, "model": model}
        super().__init__(shared, wants_usage=wants_usage)
        self.confidence: float | None = None
        self._name, self._calls, self._answered = name, 0, False
        self._counts: Any = None
        """The last `usageMetadata`. Every event contains one, so it is converted only when the usage is needed."""

    @property
    def reported(self) -> Usage | None:
        return self.usage or usage(self._counts)

    def _take(self, parsed: Any) -> bytes:
        if self.ended:
            return b""
        if self._failure:  # events after it may still report the tokens
            self._count_late(parsed)
            return b""
        try:
            if type(parsed) is list or "error" in parsed:
                return self._fail(broken(_error(parsed), orjson.dumps(parsed)))
            self._counts = parsed.get("usageMetadata") or self._counts
            written = self._written(parsed)
            if self.finish:
                self.usage = usage(self._counts) or self.usage
            return written
        except (ValueError, AttributeError, TypeError, LookupError):
            return self._misread()

    def _count_late(self, parsed: Any) -> None:
        if self.finish and type(parsed) is dict and (late := usage(parsed.get("usageMetadata"))):
            self.usage = late

    def _texts(self, values: list[dict[str, Any]], start: int) -> list[str]:
        texts: list[str] = []
        try:
            for place in range(start, len(values)):
                parsed = values[place]
                (answer,) = parsed["candidates"]
                (part,) = answer["content"]["parts"]
                text = part["text"]
                other = len(part) > 1 or "finishReason" in answer or "promptFeedback" in parsed or "error" in parsed
                other = other or type(answer.get("index", 0)) is not int
                if other or type(text) is not str or not text:
                    break
                texts.append(text)
                self._counts = parsed.get("usageMetadata") or self._counts
        except (LookupError, TypeError, ValueError):
            pass  # the event is another one
        self._answered = self._answered or bool(texts)
        return texts

    def _misread(self) -> bytes:
        return self._fail(BackendGarbage("The backend sent an event that is not one of Gemini's."))

    def _fail(self, failure: BackendError) -> bytes:
        self._failure = failure
        return b""

    def _written(self, parsed: dict[str, Any]) -> bytes:
        answer = candidate(parsed)
        written = b"".join([self._part(part) for part in parts(answer)])
        reason = blocked(parsed)
        finish = "content_filter" if reason else finish_of(answer.get("finishReason"), called=self._calls > 0)
        if not finish or self.finish:
            return written
        self.finish = finish
        if not (reason or self._answered) and (failure := fault(answer.get("finishReason"))):
            return self._fail(failure)  # thoughts may have been sent
        if not reason:
            self._transcript.silent += 1
        return written + self._chunk({"refusal": reason} if reason else {}, finish)

    def _part(self, part: dict[str, Any]) -> bytes:
        self._answered = self._answered or is_content(part)
        if "functionCall" in part:
            number, self._calls = self._calls, self._calls + 1
            return self._chunk({"tool_calls": [{"index": number, **call(part, f"call_{self._name}{number}")}]})
        if type(text := part.get("text")) is not str or not text:
            return b""
        return self._chunk({"reasoning_content" if part.get("thought") else "content": text})

    def eof(self) -> None:
        """Called at the end of the stream. Raises the failure of the stream, or StreamBroken if the answer has no
        finish reason."""
        self._read_rest()
        if not self.finish:
            super().eof()
        self.ended = True
        self._chat_usage = chat_usage(counted) if (counted := shown(self.usage)) else None
        self.ending += self._usage_chunk() + DONE


def _error(parsed: Any) -> UpstreamError | None:
    error = find_error(parsed)
    inner = parsed[0] if type(parsed) is list and parsed else parsed
    given = inner.get("error") if type(inner) is dict else None
    status = given.get("status") if type(given) is dict else None
    return UpstreamError(error.message, _KINDS.get(str(status), "")) if error else None
