"""Assembles the chunks of a stream into the body that a plain (not streamed) call would have returned."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.content_parts import flattened
from gateway.dialects.openai_chat.message import TEXT_FIELDS, generated_text, mean_probability, overall_finish
from gateway.dialects.streams import sse
from gateway.dialects.streams.text_run import TextRun, mended

MAX_BYTES = 256 * 2**10
"""Maximum bytes of a plain body that is assembled. Of a longer answer, only the beginning is kept, and the characters
of the rest are counted."""

BEGINNING = 64 * 2**10
"""Number of characters that are kept at the beginning of an answer that is too long to be kept as a whole."""

_MOST_CHOICES = 128
"""Maximum number of choices that are kept apart. OpenAI allows no more."""

_CHUNK_ONLY = frozenset({"object", "choices", "usage", "obfuscation"})
_NEVER_JOINED = frozenset({"role", "id", "type", "name", "index", "format"})
_APART = frozenset({"index", "delta"})


class Assembly:
    """Assembles an answer from whole events. The answer so far can be read at any time. If an event could not be read,
    the whole answer is not available."""

    usage: dict[str, Any] | None = None
    """The last usage object that the backend sent."""
    unreadable = 0
    _size = 0
    """The approximate number of bytes that are stored for the choices."""
    _beginning: str | None = None
    """The beginning of an answer that is too long to be kept as a whole; None if the answer is kept as a whole."""
    _beginning_confidence: float | None = None
    _discarded = 0
    """Number of characters that were counted and discarded."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._known = set(_CHUNK_ONLY)
        """Names of top-level fields whose value is already known. These fields are not read again."""
        self._choices: dict[int, _Choice] = {}

    def add(self, block: bytes) -> None:
        """Add a block of whole events."""
        for event in sse.events(block):
            data = sse.payload(event)
            if data and data != b"[DONE]":
                self.add_parsed(self._parsed(data, {}), len(data))

    def add_text(self, run: TextRun, text: bytes) -> None:
        """Add several events of `run`, whose texts are together `text`, the inside of a JSON string."""
        run.holder[run.field] = decoded = self._parsed(b'"%b"' % text, "")
        self.add_parsed(run.chunk, len(decoded))

    def _parsed(self, data: bytes, otherwise: Any) -> Any:
        """The value of `data`, which is JSON. `otherwise` if `data` cannot be read at all."""
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            self.unreadable += 1
        try:
            return orjson.loads(mended(data))
        except orjson.JSONDecodeError:
            return otherwise

    def add_parsed(self, chunk: Any, size: int) -> None:
        """Add the parsed data of an event of `size` bytes."""
        try:
            self._add(chunk, size)
        except (AttributeError, TypeError, KeyError, RecursionError):
            self.unreadable += 1

    def _add(self, chunk: dict[str, Any], size: int) -> None:
        if type(chunk.get("usage")) is dict:
            self.usage = chunk["usage"]
        if not chunk.keys() <= self._known and self._beginning is None:
            self._add_top(chunk, size)
        for choice in chunk.get("choices") or ():
            self._grow(self._choice(choice.get("index", 0)).add(choice, size))

    def _add_top(self, chunk: dict[str, Any], size: int) -> None:
        """Keep the first non-empty value of each top-level field. `size`: bytes of the event."""
        top, known, before = self._top, self._known, len(self._top) + len(self._known)
        for key, value in chunk.items():
            if key not in known:
                top[key] = value
                if value:
                    known.add(key)
        if len(top) + len(known) > before:
            self._grow(size)

    def _choice(self, index: object) -> _Choice:
        """The choice with this `index`. If `index` is not possible, any choice, because the text must be counted."""
        found = self._choices.get(index) if type(index) is int else None
        if found is not None:
            return found
        if type(index) is not int or len(self._choices) >= _MOST_CHOICES:
            self.unreadable += 1
            index = next(iter(self._choices), 0)
        return self._choices.setdefault(index, _Choice())

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_BYTES:
            self._discard()

    def cut(self) -> dict[str, Any]:
        """A chunk that ends the answer early. It gives every unfinished choice the finish reason `length`."""
        under_way = [index for index, choice in sorted(self._choices.items()) if not choice.finish]
        last = [self._last(index) for index in under_way or [0]]
        return {**self._top, "object": "chat.completion.chunk", "choices": last}

    def _last(self, index: int) -> dict[str, Any]:
        return {"index": index, "delta": {}, "logprobs": None, "finish_reason": "length"}

    def _discard(self) -> None:
        """Discard the text of an answer that is too long. The characters of the text are counted first."""
        text = self._text()
        if self._beginning is None:
            self._beginning, self._beginning_confidence = text[:BEGINNING], self.confidence
        self._discarded += len(text)
        self._choices = {index: _Choice(choice.finish) for index, choice in self._choices.items()}
        self._size = 0

    @property
    def finish(self) -> str:
        """One finish reason for all choices; empty if no reason is known."""
        return overall_finish(choice.finish for choice in self._choices.values())

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason."""
        for choice in self._choices.values():
            if not choice.finish:
                return False
        return bool(self._choices)

    @property
    def confidence(self) -> float | None:
        """The mean token probability. For a long answer, the mean of the tokens at its beginning."""
        if self._beginning is not None:
            return self._beginning_confidence
        return self._probability(choice.fields() for choice in self._choices.values())

    _probability = staticmethod(mean_probability)

    @property
    def characters(self) -> int:
        """Number of characters of generated text."""
        return self._discarded + len(self._text())

    def text(self) -> str:
        """The generated text. For a long answer, only its beginning."""
        return self._text() if self._beginning is None else self._beginning

    def _text(self) -> str:
        texts = (generated_text(choice.message()) for _, choice in sorted(self._choices.items()))
        return "\n".join(text for text in texts if text)

    def completion(self, usage: dict[str, Any] | None) -> bytes | None:
        """The plain body with `usage`. None if a choice is unfinished, an event could not be read, or the body is too
        large."""
        if not self.finished or self.unreadable or self._beginning is not None:
            return None
        body: dict[str, Any] = {**self._top, "object": "chat.completion"}
        body["choices"] = [
            {"index": index, "message": choice.message(), **choice.fields()}
            for index, choice in sorted(self._choices.items())
        ]
        if usage is not None:
            body["usage"] = usage
        try:
            rendered = orjson.dumps(self._rendered(body))
        except orjson.JSONEncodeError:  # the answer is nested too deeply to be written
            return None
        return rendered if len(rendered) <= MAX_BYTES else None

    def _rendered(self, completion: dict[str, Any]) -> dict[str, Any]:
        """Convert a chat completion to the dialect's plain body."""
        return completion


class _Choice:
    """One choice of the answer, as far as it was received."""

    def __init__(self, finish: str = "") -> None:
        self.finish = finish
        self._texts: dict[str, list[str]] = {}
        self._message: dict[str, Any] = {}
        self._fields: dict[str, Any] = {}
        self._logprobs: dict[str, Any] | None = None
        self._calls: dict[int, _Call] = {}
        self._function: _Call | None = None

    def add(self, choice: dict[str, Any], size: int) -> int:
        """Add a chunk of `size` bytes. Returns how many bytes the stored answer grows. For a chunk of only text, these
        are the bytes of the text."""
        kept = self._delta(choice.get("delta") or {}, size)
        for key, value in choice.items():
            if key == "finish_reason":
                if type(value) is str and value:
                    self.finish = value
            elif key == "logprobs":
                if value is not None:
                    self._add_logprobs(value)
                    kept = size if value else kept
            elif key not in _APART and (value is not None or key not in self._fields):
                kept = kept if key in self._fields else size
                self._fields[key] = value
        return kept

    def _delta(self, delta: dict[str, Any], size: int) -> int:
        """Add a delta from a chunk of `size` bytes. Returns how many bytes the stored answer grows."""
        characters, more = 0, False
        if type(delta.get("content")) is list:
            delta, more = flattened(delta), True
        for key, value in delta.items():
            if type(value) is str:
                characters += len(value)
            elif value:
                more = True
            if key in TEXT_FIELDS and type(value) is str:
                self._texts.setdefault(key, []).append(value)
            elif key == "tool_calls":
                self._tool_calls(value or [])
            elif key == "function_call" and value:
                self._function = self._function or _Call()
                self._function.add({"function": value})
            elif value is not None or key not in self._message:
                more = more or key not in self._message
                self._message[key] = _merged(self._message.get(key), value, key)
        return size if more else characters

    def _tool_calls(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            index = call.get("index")
            if index is None:  # some servers send each call as a whole and without an index
                index = len(self._calls)
            self._calls.setdefault(index if type(index) is int else 0, _Call()).add(call)
            if type(index) is not int:
                raise TypeError("an index must be a number")

    def _add_logprobs(self, value: dict[str, Any]) -> None:
        if self._logprobs is None:
            self._logprobs = {}
        for key, entries in value.items():
            kept = self._logprobs.get(key)
            self._logprobs[key] = kept + entries if kept and entries else entries or kept

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        message |= {key: value for key, value in self._message.items() if value is not None or key not in message}
        message |= {key: "".join(parts) for key, parts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [call.render() for _, call in sorted(self._calls.items())]
        if self._function:
            message["function_call"] = self._function.render()["function"]
        if (self._calls or self._function) and not message["content"]:
            message["content"] = None
        return message

    def fields(self) -> dict[str, Any]:
        """The choice's fields other than the message."""
        return {**self._fields, "logprobs": self._logprobs, "finish_reason": self.finish or None}


class _Call:
    """One tool call, as far as it was received. The pieces of its arguments are concatenated. Of every other field, the
    last value is kept."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._inner: dict[str, dict[str, Any]] = {}
        self._texts: dict[tuple[str, str], list[str]] = {}

    def add(self, call: dict[str, Any]) -> None:
        for key, value in call.items():
            if key in ("function", "custom") and type(value) is dict:
                self._add_inner(key, value)
            elif key != "index" and value:
                self._fields[key] = value

    def _add_inner(self, kind: str, inner: dict[str, Any]) -> None:
        known = self._inner.setdefault(kind, {})
        for key, value in inner.items():
            if key in ("arguments", "input") and type(value) is str:
                known.setdefault(key, "")
                self._texts.setdefault((kind, key), []).append(value)
            elif value:
                known[key] = value

    def render(self) -> dict[str, Any]:
        inner = {kind: dict(known) for kind, known in self._inner.items()}
        for (kind, key), parts in self._texts.items():
            inner[kind][key] = "".join(parts)
        return {**self._fields, **inner}


def _merged(known: Any, value: Any, name: str = "") -> Any:
    """Merge two values of a delta's field: `known`, the value so far, and the new `value`. Texts and lists are
    concatenated, objects are merged, and other values are replaced. `name`: the field's name; some fields are always
    replaced."""
    if type(known) is not type(value) or name in _NEVER_JOINED:
        return value if value is not None else known
    if type(known) is dict:
        return known | {key: _merged(known.get(key), inner, key) for key, inner in value.items()}
    return known + value if type(known) in (str, list) else value
