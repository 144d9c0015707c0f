"""Translates the lines of Ollama's streams to chat chunks. The provider writes each line as a server-sent event."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.answers.upstream_error import broken
from gateway.dialects.answers.usage import shown
from gateway.dialects.openai_chat.object_reader import ObjectReader
from gateway.dialects.openai_chat.reader import DONE
from gateway.dialects.translate.chat_to_messages.reply import chat_usage
from gateway.dialects.translate.chat_to_ollama.reply import Calls, error_of, finish_of, logprobs, usage
from gateway.errors import BackendError, BackendGarbage


class OllamaStream(ObjectReader):
    """Implements `StreamReader` from Ollama to OpenAI chat. The line with `done` ends the stream."""

    def __init__(
        self,
        *,
        wants_usage: bool,
        wants_logprobs: bool,
        created: int,
        name: str,
        model: str,
        forced: str = "",
    ) -> None:
        """`name`: a text from which ids are made. `forced`: the function that the request forces; empty if it forces
        none."""
        shared = {"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "created": created, "model": model}
        super().__init__(shared, wants_usage=wants_usage)
        self._wants_logprobs, self._forced = wants_logprobs, forced
        self._calls = Calls(name)
        self._forces = False
        """Whether the call of the forced function has begun."""

    @property
    def confidence(self) -> float | None:
        return self._transcript.read().confidence if self._wants_logprobs else None

    def _take(self, parsed: Any) -> bytes:
        if self.ended or self._failure:
            return b""
        try:
            if error := error_of(parsed):
                return self._fail(broken(error, orjson.dumps(parsed)))
            return self._written(parsed)
        except (ValueError, AttributeError, TypeError, LookupError):
            return self._misread()

    def _texts(self, values: list[dict[str, Any]], start: int) -> list[str]:
        texts: list[str] = []
        for place in range(start, 0 if self._forced else len(values)):
            parsed = values[place]
            message = parsed.get("message")
            if (
                parsed.get("done") is not False
                or "error" in parsed
                or "logprobs" in parsed
                or type(message) is not dict
            ):
                break
            text = message.get("content")
            if message.get("thinking") or message.get("tool_calls") or type(text) is not str or not text:
                break
            texts.append(text)
        return texts

    def _misread(self) -> bytes:
        return self._fail(BackendGarbage("The backend sent a line that is not one of Ollama's stream."))

    def _fail(self, failure: BackendError) -> bytes:
        self._failure = failure
        return b""

    def _written(self, parsed: dict[str, Any]) -> bytes:
        message: dict[str, Any] = parsed.get("message") or {}
        beside: dict[str, Any] = {"logprobs": found} if (found := logprobs(parsed)) else {}
        written = b""
        if thought := message.get("thinking"):
            written += self._chunk({"reasoning_content": _text(thought)})
        if text := message.get("content"):
            written += self._chunk(self._delta(_text(text)), **beside)
        for call in message.get("tool_calls") or ():
            index = len(self._calls)
            written += self._chunk({"tool_calls": [{"index": index, **self._calls.made(call)}]})
        return written + self._end(parsed) if parsed.get("done") is True else written

    def _delta(self, text: str) -> dict[str, Any]:
        """The delta for a piece of text. The text of a forced call consists of the call's arguments."""
        if not self._forced:
            return {"content": text}
        if self._forces:
            return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        self._forces = True
        return {"tool_calls": [{"index": 0, **self._calls.forced(self._forced, text)}]}

    def _end(self, parsed: dict[str, Any]) -> bytes:
        self.finish = finish_of(parsed, called=len(self._calls) > 0)
        self.usage, self.ended = usage(parsed), True
        self._transcript.silent += 1
        self._chat_usage = chat_usage(counted) if (counted := shown(self.usage)) else None
        self.ending = self._usage_chunk() + DONE
        return self._chunk({}, self.finish)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("not a text")
    return value
