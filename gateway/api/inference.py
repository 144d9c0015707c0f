"""The one hot endpoint: a raw ASGI callable, ahead of the Starlette application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from starlette.types import Receive, Scope, Send

from gateway.api.headers import of_error, of_record
from gateway.api.wire import HangUp, Headers, check_json, read_body, secret, send_whole
from gateway.dialects import openai_chat
from gateway.dialects.controls import parse_controls
from gateway.domain.record import Record, new_request_id
from gateway.domain.request import CompletionRequest
from gateway.domain.tasks import Tasks
from gateway.domain.tenant import Tenant
from gateway.errors import Forbidden, GatewayError, MethodNotAllowed, Overloaded
from gateway.pipeline import Pipeline, Reply
from gateway.policy.tenants import Tenants
from gateway.settings.gateway import RequestLimits
from gateway.telemetry.observe import Telemetry

log = logging.getLogger(__name__)

JSON: Headers = [(b"content-type", b"application/json")]
EVENTS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(slots=True)
class Drain:
    """Shared by the endpoint, readiness and shutdown."""

    draining: bool = False
    in_flight: int = 0


class Inference:
    """Authenticate → parse → serve → relay. Whatever goes wrong is told in the caller's dialect."""

    def __init__(
        self,
        *,
        tenants: Tenants,
        pipeline: Pipeline,
        telemetry: Telemetry,
        limits: RequestLimits,
        drain: Drain,
    ) -> None:
        self._tenants, self._pipeline, self._telemetry = tenants, pipeline, telemetry
        self._limits, self._drain = limits, drain
        self._watchers = Tasks()
        self.paths: Mapping[str, ModuleType] = {"/v1/chat/completions": openai_chat}
        """Path → the dialect spoken there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = new_request_id()
        dialect = self.paths[scope["path"]]
        try:
            tenant, request = await self._admit(scope, receive, request_id, dialect)
        except ConnectionResetError:
            return
        except Exception as error:
            refusal = _told(error, request_id)
            self._telemetry.refused(request_id, refusal, scope["path"])
            await self._refuse(send, dialect, refusal, [(b"x-request-id", request_id.encode())])
            return
        self._drain.in_flight += 1
        try:
            await self._serve(tenant, request, receive, send, dialect)
        finally:
            self._drain.in_flight -= 1

    async def _admit(
        self, scope: Scope, receive: Receive, request_id: str, dialect: ModuleType
    ) -> tuple[Tenant, CompletionRequest]:
        tenant = self._tenants.authenticate(secret(scope))
        if "inference" not in tenant.key.scopes:
            raise Forbidden("This key may not ask for completions; create one with the scope inference.")
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{scope['path']} takes POST, not {scope['method']}.")
        if self._drain.draining or self._drain.in_flight >= self._limits.concurrent:
            raise Overloaded("The gateway takes no more requests just now; try again.", retry_after_s=1.0)
        check_json(scope)
        headers = dict(scope["headers"])
        body = await read_body(scope, receive, self._limits.max_body_bytes, self._limits.body_timeout)
        request: CompletionRequest = dialect.parse(body, request_id, parse_controls(headers), headers)
        return tenant, request

    async def _serve(
        self, tenant: Tenant, request: CompletionRequest, receive: Receive, send: Send, dialect: ModuleType
    ) -> None:
        record = Record(request.id, tenant, request.model, request.dialect, request.stream)
        record.tags.update(request.controls.tags)
        record.session = request.controls.session
        task = asyncio.current_task()
        assert task is not None
        hang_up = HangUp(receive, task)
        watcher = self._watchers.spawn(hang_up.watch(), "hang-up")
        begun = False
        try:
            allowed_s = min(self._limits.deadline, request.controls.deadline_s or self._limits.deadline)
            deadline = asyncio.get_running_loop().time() + allowed_s
            async with await self._pipeline.serve(request, tenant, record, deadline) as reply:
                if reply.answer.stream:
                    begun = True
                    await self._stream(reply, send, hang_up)
                else:
                    body = b"".join([piece async for piece in reply])
                    record.first_byte_ms = (time.perf_counter() - record.started) * 1000
                    hang_up.answered = True
                    await send_whole(send, reply.answer.status, [*JSON, *of_record(record)], body)
        except asyncio.CancelledError:
            if not hang_up.happened:
                raise
            task.uncancel()
        except Exception as error:
            failure = _told(error, request.id)
            if not hang_up.answered:
                await self._fail(send, dialect, failure, record, begun)
        finally:
            watcher.cancel()

    async def _stream(self, reply: Reply, send: Send, hang_up: HangUp) -> None:
        record = reply.record
        await send({"type": "http.response.start", "status": 200, "headers": [*EVENTS, *of_record(record)]})
        record.first_byte_ms = (time.perf_counter() - record.started) * 1000
        async for piece in reply:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        hang_up.answered = True
        await send({"type": "http.response.body", "body": b""})

    async def _fail(self, send: Send, dialect: ModuleType, error: GatewayError, record: Record, begun: bool) -> None:
        """A status while there is still one to give; afterwards an error event, and never a terminating one."""
        if begun:
            await send({"type": "http.response.body", "body": dialect.error_event(error, record.request_id)})
        else:
            await self._refuse(send, dialect, error, of_record(record))

    async def _refuse(self, send: Send, dialect: ModuleType, error: GatewayError, headers: Headers) -> None:
        await send_whole(send, error.status, [*JSON, *of_error(error), *headers], dialect.error_body(error, ""))

    async def aclose(self) -> None:
        await self._watchers.aclose()


def _told(error: Exception, request_id: str) -> GatewayError:
    """What a client hears of `error`; one that nobody expected is logged and stays inside."""
    if isinstance(error, GatewayError):
        return error
    log.error("request %s failed inside the gateway", request_id, exc_info=error)
    return GatewayError(f"The gateway failed at this request; its id is {request_id}.")
