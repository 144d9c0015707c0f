"""Replays a stored answer, plain or as a stream."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.clients import DIALECTS
from gateway.dialects.facts import FACTS
from gateway.dialects.openai_chat.message import generated_text, overall_finish
from gateway.dialects.openai_responses.replay import again
from gateway.domain.answer import Sink
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt
from gateway.domain.request import CompletionRequest


class Replayed:
    """Implements `Answer` for an answer that is stored as a plain body."""

    status = 200
    complete = over = True
    attempt: Attempt | None = None

    def __init__(self, request: CompletionRequest, completion: bytes) -> None:
        """`completion`: a plain body in the request's dialect."""
        self.stream = request.stream
        self.content_type = FACTS[request.dialect].stream_type if request.stream else "application/json"
        self._dialect = DIALECTS[request.dialect]
        self._completion = completion
        self._body: dict[str, Any] | None = None
        if request.dialect == "openai_responses":  # later requests may refer to the answer's new id
            self._body = again(request, orjson.loads(completion))
            self._completion = completion = orjson.dumps(self._body)
        self._rest, self.ending = b"", completion
        if request.stream:
            self._rest, self.ending = self._dialect.replayed(request, self.body)

    @property
    def body(self) -> dict[str, Any]:
        if self._body is None:
            self._body = orjson.loads(self._completion)
        return self._body

    @property
    def choices(self) -> list[dict[str, Any]]:
        return self._dialect.choices(self.body)

    @property
    def finish(self) -> str:
        return overall_finish(choice.get("finish_reason") for choice in self.choices)

    async def pipe_to(self, take: Sink) -> bool:
        """Pass the whole stream to `take` in one piece, because all of it is available."""
        rest, self._rest = self._rest, b""
        return bool(rest) and not take(rest)

    def completion(self) -> bytes | None:
        return self._completion

    def delivered_text(self) -> str:
        return "\n".join(generated_text(choice["message"]) for choice in self.choices)

    def delivered_characters(self) -> int:
        return len(self.delivered_text())

    async def cut(self, delivered: Usage) -> bool:
        """Returns False, because the whole answer is already available."""
        return False

    async def aclose(self) -> None:
        """Does nothing, because no connection is open."""
