"""The inference endpoint, which gets nearly all requests. It is served by the gateway's own protocol or by any ASGI
server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial

from starlette.types import Receive, Scope, Send

from gateway.admission.load_shedding import LoadShedder
from gateway.api.idempotency.idempotency import Idempotency
from gateway.api.response_headers import of_error, of_id, of_record
from gateway.api.server.asgi import Headers, Pace, by_name, check_json, check_length, decoded, secret
from gateway.api.server.caller import AsgiCaller, Caller, HangUp, unless_gone
from gateway.api.server.envelope import Envelope
from gateway.api.server.reframed import Reframed
from gateway.dialects.agents import recognise
from gateway.dialects.client import ClientDialect
from gateway.dialects.clients import CONVERSATIONS, CONVERSING, PASSED_THROUGH, at
from gateway.dialects.controls import check_overrides, parse_controls
from gateway.dialects.facts import FACTS
from gateway.dialects.framing import FramedEndpoint
from gateway.dialects.passthrough.form import is_form
from gateway.dialects.path_endpoint import PathEndpoint
from gateway.dialects.requests.body_extent import check_extent
from gateway.dialects.requests.body_facts import scanned
from gateway.dialects.requests.forwarding import check_forwarding
from gateway.dialects.requests.known_bodies import LEAST_BYTES, KnownBodies, longest, to_locate
from gateway.domain.continued import Continued, Notes
from gateway.domain.record import Record, RequestIds
from gateway.domain.request import CompletionRequest, Controls
from gateway.domain.tenant import Tenant
from gateway.errors import Forbidden, GatewayError, InvalidKey, LoopDetected, MethodNotAllowed, NotFound
from gateway.pipeline import Pipeline, Reply
from gateway.policy.tenants import Tenants
from gateway.responses.memory import StoredContext
from gateway.runtime.off_loop import LARGE_BYTES, OffLoop
from gateway.settings.gateway import RequestLimits
from gateway.telemetry.observe import Telemetry

log = logging.getLogger(__name__)

JSON: Headers = [(b"content-type", b"application/json")]
_UNBUFFERED: Headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
_STREAMS = {facts.stream_type.partition(";")[0]: facts.stream_type for facts in FACTS.values()}
"""Media type of a stream of events without its parameters → the media type with its parameters."""
_MOST_NEW_BYTES = LARGE_BYTES // 4
"""Maximum new bytes of a known body that is parsed on the event loop. It is less than for other bodies, because the
positions of the new items are found too, which can take several times as long as parsing."""


class Inference:
    """Serves inference requests: authenticate → parse → serve → relay. Errors are sent in the caller's dialect."""

    def __init__(
        self,
        *,
        tenants: Tenants,
        pipeline: Pipeline,
        telemetry: Telemetry,
        limits: RequestLimits,
        overload: LoadShedder,
        envelope: Envelope,
        idempotency: Idempotency,
        memory: StoredContext | None = None,
        decoding: OffLoop | None = None,
        bodies: KnownBodies | None = None,
        instance: str = "",
    ) -> None:
        """`memory`: reads stored responses; without it, no request can refer to an earlier response. `decoding`:
        threads for decoding bodies. `bodies`: remembers large bodies. `instance`: the id of this gateway in the list of
        hops."""
        self._instance = instance
        self._tenants, self._pipeline, self._telemetry = tenants, pipeline, telemetry
        self._limits, self._overload, self._envelope = limits, overload, envelope
        self._idempotency, self._memory = idempotency, memory
        self._small_bytes = min(2 * limits.max_items, LEAST_BYTES)
        """A body of up to this number of bytes cannot have too many items, and is too small to be remembered."""
        self._bodies, self._ids = KnownBodies() if bodies is None else bodies, RequestIds()
        self._pace = Pace.of(limits)
        self._decoding = decoding or OffLoop()
        self.deadlines = pipeline.deadlines
        self.dialect_at = at

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self.answer(AsgiCaller(scope, receive, send, self.deadlines))

    async def answer(self, caller: Caller) -> None:
        """Answer one request completely. Raises only CancelledError, when the server shuts down."""
        request_id = self._ids.new()
        dialect = self.dialect_at(caller.path)
        assert dialect is not None, "callers come here for inference paths alone"
        headers = by_name(caller.headers)
        if b"accept-encoding" in headers or b"origin" in headers:
            caller = self._envelope.around(caller, headers)
        if isinstance(dialect, FramedEndpoint):
            caller = Reframed(caller, dialect, dialect.framing())
            if dialect.may_lack_content_type:
                headers.setdefault(b"content-type", JSON[0][1])
        try:
            try:
                tenant, controls, batch = self._admit(caller, headers)
            except InvalidKey:
                if isinstance(dialect, PathEndpoint) and (given := dialect.key_in(caller.query)):
                    headers.setdefault(b"authorization", b"Bearer " + given)
                await self._tenants.find(secret(headers))  # the key may be new: reads the keys again, or raises
                tenant, controls, batch = self._admit(caller, headers)
        except Exception as error:
            await self._turn_away(caller, dialect, _client_error(error, request_id), request_id)
            return
        going = None
        try:
            try:
                body = await caller.read(self._limits.max_body_bytes, self._pace)
                if coding := headers.get(b"content-encoding"):
                    reading = decoded(body, coding, self._limits.max_body_bytes, self._decoding)
                    body = await unless_gone(caller, reading)
                if len(body) > self._small_bytes:
                    request = await self._parse(caller.path, dialect, body, request_id, controls, headers, tenant)
                else:
                    request = dialect.parse(body, request_id, controls, headers)
                    check_forwarding(request, tenant.policy)
                request.query = caller.query
                recognise(request, headers)
                if FACTS[request.dialect].answers_have_ids and self._memory is not None:
                    await self._memory.recall(request, tenant)
            except ConnectionResetError:
                return
            except Exception as error:
                await self._turn_away(caller, dialect, _client_error(error, request_id), request_id)
                return
            if (key := headers.get(b"idempotency-key")) is None:
                await self._serve(caller, dialect, tenant, request)
            else:
                going = await self._serve_once(key, body, caller, dialect, tenant, request)
        finally:
            if going is None:
                self._overload.leave(tenant.team, batch=batch)
            else:
                going.add_done_callback(lambda _: self._overload.leave(tenant.team, batch=batch))

    async def _parse(
        self,
        path: str,
        dialect: ClientDialect,
        body: bytes,
        request_id: str,
        controls: Controls,
        headers: Mapping[bytes, bytes],
        tenant: Tenant,
    ) -> CompletionRequest:
        """Parse the body, and check whether the request may be forwarded. Raises the errors of `dialect.parse` and
        `check_forwarding`; BodyTooLarge for too many items."""
        conversing = CONVERSATIONS.get(path)
        owner = f"{CONVERSING.get(path)} {tenant.key.lineage}"  # the dialects read the same bytes differently
        name, off_loop = conversing.CONVERSATION if conversing else "", self._pipeline.off_loop
        alike = self._bodies.alike(owner, name, body)
        if bodies := to_locate(alike):
            await off_loop.run(self._bodies.locate, bodies)
        known = longest(alike, body)

        def parse(continued: Continued | None, *, on_loop: bool = False) -> CompletionRequest:
            scan = continued.scan if continued else scanned(body)
            if not is_form(headers.get(b"content-type", b"")):
                check_extent(body, self._limits.max_items, scan=scan)
            if conversing is None:
                request = dialect.parse(body, request_id, controls, headers)
            else:
                request = conversing.parse(body, request_id, controls, headers, continued)
            fields, before = request.body, known if continued else None
            request.scan, request.notes = scan, (notes := continued.notes if continued else Notes())
            check_forwarding(request, tenant.policy)
            if conversing is not None:
                keep = partial(self._bodies.keep, owner, name, body, fields, request.turns, notes, scan, before)
                if on_loop:
                    self._after_sending(keep)
                else:
                    keep()
            return request

        if known is not None and known.new_bytes(body) > _MOST_NEW_BYTES:
            return await off_loop.run(lambda: parse(known.parsed(body)))
        continued = known.parsed(body) if known else None
        if continued is None and len(body) > LARGE_BYTES:
            return await off_loop.run(parse, None)
        return parse(continued, on_loop=True)

    def _after_sending(self, work: Callable[[], None]) -> None:
        """Run `work` in the third turn of the loop from now. If nothing delays the request that is being parsed, it has
        then been sent: in the first turn its call begins, and in the second the write batcher sends it."""
        soon = self.deadlines.loop.call_soon
        soon(soon, soon, work)

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Tenant:
        """The tenant of a key that may ask for completions. Raises InvalidKey, Forbidden."""
        return _for_inference(await self._tenants.find(secret(headers)))

    def _admit(self, caller: Caller, headers: Mapping[bytes, bytes]) -> tuple[Tenant, Controls, bool]:
        """Make all checks that need no body. If the request is admitted, `leave` of the load shedder must be called
        when the request ends.

        Returns the tenant, the controls, and whether the priority is `batch`.
        """
        tenant = _for_inference(self._tenants.authenticate(secret(headers)))
        if caller.method != "POST":
            raise MethodNotAllowed(f"{caller.path} takes POST, not {caller.method}.")
        if (family := PASSED_THROUGH.get(caller.path)) is None:
            check_json(headers)
        elif family not in tenant.policy.passthrough:
            raise NotFound(
                f"{caller.path} is not open to team {tenant.team}; passthrough: [{family}] in its policy opens it."
            )
        check_length(headers, self._limits.max_body_bytes)
        controls = parse_controls(headers)
        check_overrides(controls, tenant.policy)
        if controls.hops:
            self._check_hops(controls.hops)
        batch = tenant.batch(controls)
        self._overload.enter(tenant.team, batch=batch)
        return tenant, controls, batch

    def _check_hops(self, hops: Sequence[str]) -> None:
        if self._instance in hops:
            raise LoopDetected(
                f"The request has passed this gateway before: {' → '.join((*hops, self._instance))}. A backend "
                "leads back to it; correct its base_url, or the model that it asks for."
            )

    async def _serve(self, caller: Caller, dialect: ClientDialect, tenant: Tenant, request: CompletionRequest) -> None:
        controls, loop = request.controls, self.deadlines.loop
        record = Record(
            request.id,
            tenant,
            request.model,
            request.dialect,
            request.stream,
            tags=dict(controls.tags),
            session=controls.session or request.agent_session,
            agent=request.agent,
            trace=request.headers,
            of_gateway=bool(controls.hops),
        )
        task = asyncio.current_task(loop)
        assert task is not None
        hang_up = HangUp(task, record)
        caller.listen(hang_up)
        begun, reply = "", None
        try:
            allowed_s = self._limits.deadline
            if controls.deadline_s:
                allowed_s = min(allowed_s, controls.deadline_s)
            deadline = loop.time() + allowed_s
            async with await self._pipeline.serve(request, tenant, record, deadline) as reply:
                if hang_up.happened:  # the task went on only for other requests, which now have its result
                    raise asyncio.CancelledError
                answer = reply.answer
                record.first_byte_ms = (time.perf_counter() - record.started) * 1000
                if answer.stream:
                    caller.begin([*_of_type(answer.content_type), *of_record(record)])
                    begun = answer.content_type  # not earlier: after a failure of `begin`, a status can still be sent
                    await self._stream(caller, reply, hang_up, request)
                else:
                    reply.outcome.settle()
                    body = answer.ending
                    if request.store and self._memory is not None:
                        await self._memory.keep(request, tenant, body)
                    hang_up.answered = True
                    await caller.whole(answer.status, _of_type(answer.content_type) + of_record(record), body)
        except asyncio.CancelledError:
            if not hang_up.happened:
                raise
            task.uncancel()
        except Exception as error:
            failure = _client_error(error, request.id)
            if not hang_up.answered:
                await self._fail(caller, dialect, failure, record, begun, reply.last if reply else b"")
        finally:
            caller.close()

    async def _serve_once(
        self,
        key: bytes,
        body: bytes,
        caller: Caller,
        dialect: ClientDialect,
        tenant: Tenant,
        request: CompletionRequest,
    ) -> asyncio.Task[None] | None:
        """Serve the first request with the idempotency key `key`, and give repeated requests the same answer. If the
        caller has left, returns the task that still serves the request."""

        async def serve(recorder: Caller) -> None:
            await self._serve(recorder, dialect, tenant, request)

        async def refuse(asking: Caller, error: GatewayError) -> None:
            await self._turn_away(asking, dialect, error, request.id)

        try:
            return await self._idempotency.answer(key, body, caller, tenant, serve, refuse)
        except GatewayError as error:
            await refuse(caller, error)
            return None

    async def _stream(self, caller: Caller, reply: Reply, hang_up: HangUp, request: CompletionRequest) -> None:
        while await reply.pipe_to(caller.put):
            await caller.drain()
        if request.store and self._memory is not None:
            await self._memory.keep(request, reply.record.tenant, reply.answer.completion())
        hang_up.answered = True
        await caller.end(reply.ending)

    async def _fail(
        self, caller: Caller, dialect: ClientDialect, error: GatewayError, record: Record, begun: str, sent: bytes
    ) -> None:
        """Send an error status, or an error event if a status has been sent already.

        `begun`: content type of the answer that has begun. If an answer of this type has no error events, the
        connection is broken off. `sent`: the last bytes that were sent.
        """
        if begun.startswith(tuple(_STREAMS)):
            await caller.end(dialect.error_event(error, record.request_id, sent), broken=True)
        elif not begun:
            headers = [*JSON, *of_error(error), *of_record(record)]
            await caller.whole(dialect.status(error), headers, dialect.error_body(error, record.request_id))

    async def _turn_away(self, caller: Caller, dialect: ClientDialect, error: GatewayError, request_id: str) -> None:
        """Refuse the request before an answer has begun."""
        self._telemetry.refused(request_id, error, caller.path)
        headers: Headers = [*JSON, *of_error(error), *of_id(request_id)]
        if error.status == MethodNotAllowed.status:
            headers.append((b"allow", b"POST"))
        body = dialect.error_body(error, request_id)
        await caller.whole(dialect.status(error), headers, body, pause_s=self._overload.pause_s(error))


@lru_cache(maxsize=256)
def _of_type(content_type: str) -> Headers:
    """The response headers for an answer of this content type."""
    stream = next((whole for kind, whole in _STREAMS.items() if content_type.startswith(kind)), "")
    head = (b"content-type", (stream or content_type).encode("latin-1"))
    return [head, *_UNBUFFERED] if stream else [head]


def _for_inference(tenant: Tenant) -> Tenant:
    """Return the tenant if its key may ask for completions. Raises Forbidden."""
    if "inference" not in tenant.key.scopes:
        raise Forbidden("This key may not ask for completions; create one with the scope inference.")
    return tenant


def _client_error(error: Exception, request_id: str) -> GatewayError:
    """The error that a client gets for `error`. An unexpected error is logged, and its text is not shown."""
    if isinstance(error, GatewayError):
        return error
    log.error("request %s failed inside the gateway", request_id, exc_info=error)
    return GatewayError("The gateway failed at this request.")
