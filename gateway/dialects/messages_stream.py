"""Anthropic's stream events as OpenAI chat chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from gateway.dialects import sse
from gateway.dialects.chat_stream import DONE
from gateway.dialects.messages_reply import chat_usage, finish_of, messages_usage
from gateway.dialects.transcript import Transcript
from gateway.dialects.upstream_error import find_error
from gateway.domain.usage import Usage
from gateway.errors import BackendError, BackendGarbage, StreamBroken


class MessagesStream:
    """StreamReader for OpenAI chat → Anthropic messages. `message_stop` becomes `[DONE]`.

    `usage` stays None until the final counts came: the first event knows the input but next to nothing of the output.
    """

    def __init__(self, *, wants_usage: bool, created: int) -> None:
        self.usage: Usage | None = None
        self.finish = ""
        self.ended = False
        self.ending = b""
        self.confidence: float | None = None
        self._wants_usage = wants_usage
        self._begun = False
        self._framer = sse.Framer()
        self._transcript = Transcript()
        self._failure: BackendError | None = None
        self._raw_usage: dict[str, Any] = {}
        self._calls: dict[int, _Call] = {}
        self._shared: dict[str, Any] = {"id": "", "object": "chat.completion.chunk", "created": created, "model": ""}
        self._readers: dict[str, Callable[[dict[str, Any]], bytes]] = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
        }

    @property
    def chunks(self) -> int:
        return self._transcript.chunks

    @property
    def silent(self) -> int:
        return self._transcript.silent

    def feed(self, data: bytes) -> bytes:
        if self._failure:
            raise self._failure
        if self.ended:
            return b""
        relayed = self._relay(self._framer.feed(data))
        if self._failure and not relayed:
            raise self._failure
        return relayed

    def _relay(self, block: bytes) -> bytes:
        relayed = b"".join(self._read(event) for event in sse.events(block))
        if relayed:
            self._transcript.keep(relayed)
        return relayed

    def _read(self, event: bytes) -> bytes:
        data = sse.payload(event)
        if not data or self.ended or self._failure:
            return b""
        try:
            said = orjson.loads(data)
            read = self._readers.get(said["type"])
            return read(said) if read else b""
        except (orjson.JSONDecodeError, AttributeError, TypeError, KeyError):
            self._failure = BackendGarbage("The backend sent an event that is not one of Anthropic's.")
            return b""

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        if not self._begun:  # llama.cpp leaves out message_start when its first token is half a character.
            delta = {"role": "assistant", **delta}
            self._begun = True
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**self._shared, "choices": [choice]})

    def _message_start(self, said: dict[str, Any]) -> bytes:
        message = said["message"]
        self._shared |= {"id": message.get("id", ""), "model": message.get("model", "")}
        self._count(message.get("usage"))
        return self._chunk({"content": "", "refusal": None})

    def _block_start(self, said: dict[str, Any]) -> bytes:
        block = said["content_block"]
        kind = block["type"]
        if kind == "tool_use":
            call = self._calls[said["index"]] = _Call(len(self._calls), block.get("input") or {})
            function = {"name": block["name"], "arguments": ""}
            opening = {"index": call.number, "id": block["id"], "type": "function", "function": function}
            return self._chunk({"tool_calls": [opening]})
        return self._text(kind, block.get(kind))

    def _block_delta(self, said: dict[str, Any]) -> bytes:
        delta = said["delta"]
        if delta["type"] != "input_json_delta":
            kind = delta["type"].removesuffix("_delta")
            return self._text(kind, delta.get(kind))
        call = self._calls.get(said["index"])
        if call is None or not delta["partial_json"]:
            return b""
        call.spoken = True
        return self._arguments(call, delta["partial_json"])

    def _text(self, kind: str, text: Any) -> bytes:
        """Signatures, citations and the work of server tools have no place in a chat completion."""
        field = {"text": "content", "thinking": "reasoning_content"}.get(kind)
        return self._chunk({field: text}) if field and text else b""

    def _arguments(self, call: _Call, piece: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": call.number, "function": {"arguments": piece}}]})

    def _block_stop(self, said: dict[str, Any]) -> bytes:
        """A call without arguments streams none; OpenAI's clients parse them all the same."""
        call = self._calls.get(said["index"])
        if call is None or call.spoken:
            return b""
        return self._arguments(call, orjson.dumps(call.given).decode())

    def _message_delta(self, said: dict[str, Any]) -> bytes:
        self._count(said.get("usage"))
        self.usage = messages_usage(self._raw_usage)
        self.finish = finish_of(said["delta"].get("stop_reason")) or self.finish
        if not self.finish:
            return b""
        self._transcript.silent += 1
        return self._chunk({}, self.finish)

    def _count(self, usage: Any) -> None:
        """Counts are cumulative, and the later event may leave out what it does not change."""
        if type(usage) is dict:
            self._raw_usage |= {name: value for name, value in usage.items() if value is not None}

    def _message_stop(self, said: dict[str, Any]) -> bytes:
        self.ended = True
        self.ending = DONE
        if self._wants_usage and self.usage:
            return _event({**self._shared, "choices": [], "usage": chat_usage(self.usage)})
        return b""

    def _error(self, said: dict[str, Any]) -> bytes:
        error = find_error(said)
        words = error.message if error else "no reason given"
        self._failure = StreamBroken(f"The backend's stream ended with an error: {words}")
        return b""

    def eof(self) -> None:
        """Whole is only what ended with `message_stop`: before it the final usage may be missing."""
        if self.ended:
            return
        rest = self._framer.rest()
        if not self._failure and sse.lacks_only_its_end(rest):
            self.ending = self._read(rest) + self.ending
        if self._failure:
            raise self._failure
        if not self.ended:
            raise StreamBroken("The backend closed its stream before the answer was complete.")

    def completion(self) -> bytes | None:
        if not self.ended:
            return None
        return self._transcript.read().completion(chat_usage(self.usage) if self.usage else None)

    def delivered_text(self) -> str:
        return self._transcript.read().text()

    def delivered_characters(self) -> int:
        return self._transcript.read().characters


class _Call:
    """A tool call under way: its number among the calls, and the input that came with its beginning."""

    def __init__(self, number: int, given: dict[str, Any]) -> None:
        self.number = number
        self.given = given
        self.spoken = False


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
