"""A pipeline for tests of who sends lines through it: answers as a script says, with the real Reply around it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from gateway.domain.answer import Sink
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.pipeline import Reply
from gateway.runtime.deadlines import Deadlines
from gateway.settlement import Unpaid


class PlainAnswer:
    """Implements Answer: nothing but an ending."""

    stream, status, content_type, complete, over, finish = False, 200, "application/json", True, True, "stop"
    attempt: Attempt | None = None
    choices: list[dict[str, Any]] | None = None

    def __init__(self, ending: bytes) -> None:
        self.ending = ending

    async def pipe_to(self, take: Sink) -> bool:
        return False

    def completion(self) -> bytes | None:
        return self.ending

    def delivered_text(self) -> str:
        return ""

    def delivered_characters(self) -> int:
        return 0

    async def aclose(self) -> None:
        """Nothing is open."""


class Unheard:
    """Telemetry that nobody reads."""

    def begin(self, record: Record) -> None: ...
    def end(self, record: Record, error: BaseException | None) -> None: ...


class FakePipeline:
    """Answers with what was asked; `script` maps a question to what happens instead, one step a time it is asked."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.telemetry = Unheard()
        self.asked: list[str] = []
        self.requests: list[CompletionRequest] = []
        self.records: list[Record] = []
        self.script: dict[str, list[Exception | asyncio.Event]] = {}
        """A step: raise this, or answer only after that."""
        self.answered: list[str] = []
        self.most = self._now = 0
        """Requests in progress at a time."""

    async def serve(self, request: CompletionRequest, tenant: Tenant, record: Record, deadline: float) -> Reply:
        assert deadline > asyncio.get_running_loop().time()
        assert record.request_id == request.id
        self.asked.append(request.last_user)
        self.requests.append(request)
        self.records.append(record)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await self._play(request.last_user)
        finally:
            self._now -= 1
        self.answered.append(request.last_user)
        # As an upstream may write it: over several lines.
        body = orjson.dumps({"said": request.last_user, "team": tenant.team}, option=orjson.OPT_INDENT_2)
        reply = Reply(self, record, deadline)  # type: ignore[arg-type]
        reply.outcome = Unpaid(answer=PlainAnswer(body))
        return reply

    async def _play(self, question: str) -> None:
        steps = self.script.get(question)
        step: Any = steps.pop(0) if steps else None
        if isinstance(step, Exception):
            raise step
        if step is not None:
            await step.wait()
        await asyncio.sleep(0)


class FakeMemory:
    """Makes every request stand alone by a tag, and keeps the answers of those that ask for it."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes | None] = {}
        """Team → the last answer."""

    async def recall(self, request: CompletionRequest, tenant: Tenant) -> None:
        request.controls = request.controls._replace(tags={"recalled": tenant.team})
        request.store = request.body.get("store") is not False

    async def keep(self, request: CompletionRequest, tenant: Tenant, answer: bytes | None) -> None:
        self.kept[tenant.team] = answer
