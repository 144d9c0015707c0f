"""Kind `simulated`: deterministic answers without network, labelled as simulated."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import orjson

from gateway.backends.http.canned import Canned
from gateway.backends.providers.base import PATHS, Call, Upstream
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest, DialectName

_ECHO = 160
"""Maximum characters of the question that the answer repeats."""
_MOST_TOKENS = 4096


class Simulated:
    """Answers every request with a text that is labelled as simulated. The usage is counted, but the answers have no
    price."""

    dialect: DialectName = "openai_chat"
    fetches = False
    secret = ""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def open(self) -> None:
        """Does nothing."""

    async def aclose(self) -> None:
        """Does nothing."""

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        return PATHS["openai_chat"]

    def retry_after_s(self, upstream: Upstream) -> float | None:
        return None

    async def send(self, call: Call) -> Upstream:
        body: dict[str, Any] = orjson.loads(call.body)
        words = _text(call.request.last_user, self._backend.name)
        most = min(call.request.max_output_tokens or _MOST_TOKENS, _MOST_TOKENS)
        finish = "stop" if len(words) <= most else "length"
        answer = {
            "id": "chatcmpl-sim" + hashlib.sha256(call.body).hexdigest()[:24],
            "created": int(time.time()),
            "model": self._backend.model,
        }
        usage = _usage(call.body, min(len(words), most) * call.request.parallel)
        if body.get("stream"):
            events = _events(words[:most], finish, call.request.parallel)
            chunks = [{**answer, "object": "chat.completion.chunk", "choices": [choice]} for choice in events]
            chunks.append({**answer, "object": "chat.completion.chunk", "choices": [], "usage": usage})
            data = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks)
            return Canned(200, data + b"data: [DONE]\n\n", {b"content-type": b"text/event-stream"})
        message = {"role": "assistant", "content": "".join(words[:most])}
        choices = [
            {"index": index, "message": message, "logprobs": None, "finish_reason": finish}
            for index in range(call.request.parallel)
        ]
        whole = {**answer, "object": "chat.completion", "choices": choices, "usage": usage}
        return Canned(200, orjson.dumps(whole), {b"content-type": b"application/json"})


def _text(question: str, name: str) -> list[str]:
    """The answer as a list of words; each word counts as one token."""
    asked = " ".join(question.split())
    if len(asked) > _ECHO:
        asked = asked[:_ECHO] + "…"
    text = f"[simulated] No model was asked: {name} stands in for a stronger one. The question was: {asked}"
    return [word if index == 0 else " " + word for index, word in enumerate(text.split(" "))]


def _events(words: list[str], finish: str, parallel: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for index in range(parallel):
        events.append({"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        events.extend({"index": index, "delta": {"content": word}, "finish_reason": None} for word in words)
        events.append({"index": index, "delta": {}, "finish_reason": finish})
    return events


def _usage(body: bytes, output_tokens: int) -> dict[str, int]:
    """A usage object. The number of input tokens is estimated with four bytes per token."""
    input_tokens = -(-len(body) // 4)
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
