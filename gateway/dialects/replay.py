"""A stored answer, served again: whole, or as the stream that it could have been."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson

from gateway.dialects.chat_message import generated_text, overall_finish
from gateway.dialects.clients import DIALECTS
from gateway.domain.answer import Take, pieces
from gateway.domain.record import Attempt
from gateway.domain.request import CompletionRequest


class Replayed:
    """An Answer made from a stored plain body. Id, time and usage are those of the answer that was stored."""

    status = 200
    complete = over = True
    attempt: Attempt | None = None

    def __init__(self, request: CompletionRequest, completion: bytes) -> None:
        """`completion`: a plain body in the request's dialect, as a reader or a backend gave it."""
        self.stream = request.stream
        self.content_type = "text/event-stream" if request.stream else "application/json"
        self._dialect = DIALECTS[request.dialect]
        self._completion = completion
        self._body: dict[str, Any] | None = None
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

    def __aiter__(self) -> AsyncIterator[bytes]:
        return pieces(self.pour)

    async def pour(self, take: Take) -> bool:
        """All of a stream in one piece: there is nothing to wait for."""
        rest, self._rest = self._rest, b""
        return bool(rest) and not take(rest)

    def completion(self) -> bytes | None:
        return self._completion

    def delivered_text(self) -> str:
        return "\n".join(generated_text(choice["message"]) for choice in self.choices)

    def delivered_characters(self) -> int:
        return len(self.delivered_text())

    async def aclose(self) -> None:
        """Nothing is open."""
