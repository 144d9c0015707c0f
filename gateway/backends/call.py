"""One call of one backend. Builds and sends the call. Returns the answer when its first bytes have arrived, or raises
an error."""

from __future__ import annotations

import asyncio
import math
import re
from functools import lru_cache
from operator import itemgetter

import orjson

from gateway.backends.plausible import MOST_PER_TOKEN, checked_usage, usage_without_answer
from gateway.backends.providers.base import Call, Kind, Upstream, error_body
from gateway.backends.providers.hosted import chat_rules, limit_fields, obfuscates, refuses_foreign_fields
from gateway.backends.relay import MISREAD, Relayed, Whole, misread
from gateway.backends.resilience.breaker import SHORT_PAUSE_S, Health, Slot
from gateway.backends.resilience.drain import BackendDrains
from gateway.dialects.answers import upstream_error
from gateway.dialects.answers.upstream_error import UpstreamError
from gateway.dialects.anthropic_messages import models
from gateway.dialects.base import StreamReader, Translator
from gateway.dialects.passthrough.native import Passthrough
from gateway.dialects.registry import translators
from gateway.dialects.requests.embedded_media import check_embedded
from gateway.dialects.requests.output_limits import lowered, may_have_foreign, own_limit
from gateway.domain.backend import Backend
from gateway.domain.money.pace import Pace
from gateway.domain.protocols import Clock
from gateway.domain.record import Attempt
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.domain.text.concealment import Concealer
from gateway.errors import (
    BackendError,
    BackendFailed,
    BackendOverloaded,
    BackendRateLimited,
    BackendRefused,
    BackendTimeout,
    BadRequest,
    BudgetExhausted,
    DeadlineExceeded,
    FaultyAnswer,
    LoopDetected,
    NotSpoken,
    UnknownModel,
)

_MOST_PLAIN_BYTES = 64 * 2**20
_CAP = re.compile(rb"\d{1,9}")
"""Matches the number of output tokens to which an upper gateway has capped an answer, because of its own budgets."""
_OUTPUT_CAP = b"x-thriftgate-output-cap"
KEPT_HEADERS = (b"openai-", b"x-ratelimit-", b"x-tokenlimit-", b"anthropic-ratelimit-")
KEPT_OF_GATEWAYS = (b"x-thriftgate-", b"x-litellm-")
"""Prefixes of the response headers that are kept for later. `KEPT_HEADERS` are kept of all backends, `KEPT_OF_GATEWAYS`
only of backends that are gateways."""
_NAME = itemgetter(0)
_MOST_HEADS = 64
"""For each backend, maximum number of different lists of response header names that are remembered. For each list, the
positions of the headers to keep are stored."""
_CONTENT_TYPE = re.compile(rb"[\x20-\x7e]{1,256}")
"""Matches the content types of a backend's answer that may be relayed to the client."""
OPERATOR_ERRORS = {
    401: "does not accept the gateway's key; check its {authenticated_by}",
    402: "wants to be paid first; check the account behind its {authenticated_by}",
    403: "forbids the gateway this call; check what its {authenticated_by} may do",
    404: "knows no such path or model; check its {addressed_by}",
    405: "takes no completions there; check its `base_url`",
}
"""Status codes of problems that only the operator can fix, and the text for each. The client cannot be the cause,
because the client's own key, path and model name are never sent to a backend."""
_WITH_CACHE_KEY = frozenset({"openai_chat", "openai_responses"})
"""Dialects of backends in which a request may have `prompt_cache_key`."""
_TEMPORARY = frozenset({408, 409, 425})
"""4xx status codes that report a temporary condition, so another call may succeed."""
_OVERLOADED = frozenset({503, 529})
_NO_ENDPOINT = frozenset({404, 405, 501})
_FORBIDDEN = 403
_OTHER_ENDPOINT = "v1/responses"
_MOST_RETRY_AFTER_S = 86_400.0
"""Maximum seconds in the `retry-after` header that is sent to clients, because clients wait as long as the header
states."""
_LONGEST_DRAIN_S = 60.0
"""Maximum seconds of a drain that a backend's own `retry-after` starts."""
_RELEARN_S = 600.0
"""Seconds after which a missing endpoint is tried again, because the server may have been updated."""

Written = tuple[Translator, bytes]
"""A translator, and the request body that it wrote."""


def operator_error(backend: Backend, status: int) -> str:
    """The text for a status code whose cause the operator must correct, with the settings to check."""
    text = OPERATOR_ERRORS.get(status, "answers with a redirect; check its `base_url`")
    return text.format(addressed_by=backend.facts.addressed_by, authenticated_by=backend.authenticated_by)


class BackendCall:
    """Builds, sends and reads the calls to one backend."""

    def __init__(self, backend: Backend, kind: Kind, health: Health, clock: Clock, drains: BackendDrains) -> None:
        self.backend, self.kind, self.health = backend, kind, health
        self._clock, self._drains = clock, drains
        self._embeds, self._wants_limit = kind.fetches, backend.facts.requires_max_tokens
        self._model = backend.sent_model
        self._kept = KEPT_HEADERS + KEPT_OF_GATEWAYS if backend.facts.tells_cost else KEPT_HEADERS
        self._places = lru_cache(_MOST_HEADS)(self._kept_places)
        """Returns the positions of the headers to keep. Argument: the names of all headers of a response. The results
        are cached, because most responses of a server have the same header names."""
        self._chosen: dict[DialectName, Translator] = {}
        self._unspoken: set[DialectName] = set()
        """The dialects for which the backend's server has no endpoint. The set is valid until `_relearn_at` (loop
        time)."""
        self._relearn_at = 0.0
        self._thinks = "reasoning" in backend.capabilities
        self.paces = Pace(plain=True), Pace(hides=self._thinks)
        """The generation speed: first for plain answers, then for streams."""
        self._limits, self._strict = limit_fields(backend), refuses_foreign_fields(backend)
        self._obfuscates = obfuscates(backend)
        self._rules = chat_rules(backend)
        chosen = "first_byte_timeout" in backend.model_fields_set
        self._begin_s = (backend.first_byte_timeout if chosen else backend.timeout, backend.first_byte_timeout)
        """Seconds to wait for the first byte: first for a plain answer, then for a stream.

        A plain answer sends its first byte only when the whole answer is finished. Therefore the first number is the
        backend's `timeout`, unless the operator configured `first_byte_timeout`.
        """

    def call(self, request: CompletionRequest, written: Written, now: float, deadline: float) -> Call:
        """Build the call to send at `now`, to end before `deadline` (loop times). `written`: the result of `write`."""
        backend, (translator, body) = self.backend, written
        ends = now + backend.timeout
        return Call(
            request,
            translator,
            body,
            ends if ends < deadline else deadline,
            self._begin_s[request.stream],
            backend.stall_timeout if request.stream else math.inf,
            deadline,
            self.kind.secret,
        )

    def writes_long(self, request: CompletionRequest, plan: ContextPlan) -> bool:
        """Whether `write` takes so long that it must run in a thread. This can be true only for a body of more than
        `LARGE_BYTES`."""
        translator = self._chosen.get(request.dialect)
        copied = translator is not None and translator.backend == request.dialect and not plan.touched
        return request.is_large or not copied

    def write(
        self, request: CompletionRequest, plan: ContextPlan, now: float, logprobs: bool, paid_output: int | None
    ) -> Written:
        """Write the body in the backend's dialect, for a call at the loop time `now`. Safe to run in a thread.

        `paid_output`: maximum tokens to generate. Raises BadRequest if the backend cannot express the request, or if
        the request contains URLs that the backend would download.
        """
        if self._unspoken and now > self._relearn_at:
            self._unspoken.clear()
            self._chosen.clear()
        translator = self._chosen.get(request.dialect) or self._translator(request.dialect)
        most = self._most_output(request, paid_output)
        foreign = most is not None and may_have_foreign(request)
        body = translator.body(
            plan.instead or request,
            self._model,
            plan if plan.changes_body else None,
            logprobs=logprobs,
            max_output_tokens=own_limit(request, most) if most is not None and foreign else most,
        )
        if most is not None and foreign:
            body = lowered(body, most)
        if plan.cache_fields and translator.backend in _WITH_CACHE_KEY:
            begins = body.index(b"{") + 1
            body = b"%b%b%b" % (body[:begins], plan.cache_fields, body[begins:])
        if self._embeds:
            check_embedded(orjson.loads(body).get("messages"), self.backend.name)
        return translator, body

    def _most_output(self, request: CompletionRequest, paid: int | None) -> int | None:
        """The output limit to send, in tokens; None: the client's own limit is sent. `paid`: tokens that the budget
        covers. The limit never exceeds the backend's maximum."""
        most, asked = self.backend.max_output_tokens, request.max_output_tokens
        if paid is not None and (asked is None or paid < asked):
            return paid if most is None else min(paid, most)
        if asked is None:
            if most is not None and may_have_foreign(request):
                return most
            if not self._wants_limit:
                return None
            asked = models.MOST_USUAL_OUTPUT
        return most if most is not None and asked > most else request.output_cap

    def _translator(self, client: DialectName) -> Translator:
        found = self._translators(client)
        if not found:
            raise BadRequest(f"{self.backend.name} cannot be asked in the dialect of this endpoint.")
        translator = next((each for each in found if each.backend not in self._unspoken), found[-1])
        self._chosen[client] = translator
        return translator

    def _forget_endpoint(self, dialect: DialectName) -> None:
        self._unspoken.add(dialect)
        self._chosen.clear()
        self._relearn_at = asyncio.get_running_loop().time() + _RELEARN_S

    def _lacks(self, wire: Translator, error: UpstreamError | None) -> bool:
        """Whether the server refused a request because it does not have the endpoint of `wire`. A status code 404, 405
        or 501 does not decide this, because it can also mean that the server does not have the model."""
        # OpenAI serves some models over Responses only, and its error text names that endpoint
        if wire.backend == self.kind.dialect:
            return error is not None and _OTHER_ENDPOINT in error.message and self._has_other(wire)
        return error is None or (error.code != UnknownModel.code and error.param in (None, "model"))

    def _has_other(self, wire: Translator) -> bool:
        """Whether the request can still be sent in another dialect of the backend, different from the dialect of
        `wire`."""
        return any(
            each.backend != wire.backend and each.backend not in self._unspoken
            for each in self._translators(wire.client)
        )

    def _translators(self, client: DialectName) -> tuple[Translator, ...]:
        backend = self.backend
        return translators(
            client,
            backend.spoken,
            thinks=self._thinks,
            limits=self._limits,
            strict=self._strict,
            rules=self._rules,
            obfuscates=self._obfuscates,
        )

    async def ask(self, call: Call, attempt: Attempt, slot: Slot) -> Relayed | Whole:
        """Send the call and return the answer. `slot` is released when the answer has ended. On an error, report the
        result to `slot` and raise BackendError."""
        try:
            upstream = await self.kind.send(call)
            attempt.status = upstream.status
            headers = upstream.headers
            if places := self._places(tuple(map(_NAME, headers))):
                attempt.headers = told = [headers[place] for place in places]
                self.health.headroom.see(told, self._clock.monotonic(), self._clock.time())
                if _CAP.fullmatch(cap := dict(told).get(_OUTPUT_CAP, b"")):
                    attempt.output_cap = min(int(cap), attempt.output_cap or int(cap))
            try:
                if not 200 <= upstream.status < 300:
                    raise await self._failure(call, upstream)
                if type(call.wire) is Passthrough:
                    return await self._by_content_type(call, call.wire, upstream, attempt, slot)
                if call.request.stream:
                    return await self._relayed(call, call.wire.reader(call.request), upstream, attempt, slot)
                return await self._whole(call, upstream, attempt, slot)
            except BaseException:
                await upstream.aclose()
                raise
        except BackendError as error:
            error.backend = self.backend.name
            call.conceal(error)
            self._report(slot, error, call, attempt.status)
            raise

    def _kept_places(self, names: tuple[bytes, ...]) -> list[int]:
        return [place for place, name in enumerate(names) if name.startswith(self._kept)]

    def _report(self, slot: Slot, error: BackendError, call: Call, status: int | None) -> None:
        """Update the backend's health after an error. `status`: the HTTP status of the backend's answer; None if no
        answer arrived."""
        if isinstance(error, BackendRateLimited):
            # An upper gateway's budget may still cover smaller requests, and those of other teams.
            slot.limited(None if error.no_quota and self.backend.facts.tells_cost else error.retry_after_s)
        elif isinstance(error, BackendRefused | FaultyAnswer | NotSpoken):
            slot.succeeded(answered=False)  # the backend works; the error is in the request, or in one answer
        elif error.code == DeadlineExceeded.code or (isinstance(error, BackendTimeout) and call.out_of_time):
            slot.left()  # the request's own deadline was short, so this is no failure of the backend
        elif status == _FORBIDDEN and self.health.answered_lately:
            slot.left()  # the key works for other requests, so the cause may be this request
        else:
            slot.failed(error)
            if isinstance(error, BackendOverloaded) and (error.retry_after_s or 0.0) > SHORT_PAUSE_S:
                self._drains.see(self.backend.name, min(error.retry_after_s or 0.0, _LONGEST_DRAIN_S), "it said 503")

    async def _by_content_type(
        self, call: Call, wire: Passthrough, upstream: Upstream, attempt: Attempt, slot: Slot
    ) -> Relayed | Whole:
        """Read an answer on a passed-through path. The answer's content type decides whether it is read as a stream or
        as a whole."""
        header = upstream.header(b"content-type") or b""
        content_type = header.decode("ascii") if _CONTENT_TYPE.fullmatch(header) else "application/octet-stream"
        answer: Relayed | Whole
        if reader := wire.reader_of(content_type):
            answer = await self._relayed(call, reader, upstream, attempt, slot)
        else:
            answer = await self._whole(call, upstream, attempt, slot)
        answer.content_type = Concealer(call.secret)(content_type)
        return answer

    async def _relayed(
        self, call: Call, reader: StreamReader, upstream: Upstream, attempt: Attempt, slot: Slot
    ) -> Relayed:
        answer = Relayed(upstream, reader, attempt, slot, call, time=self._clock.time)
        await answer.begin()
        return answer

    async def _whole(self, call: Call, upstream: Upstream, attempt: Attempt, slot: Slot) -> Whole:
        attempt.first_byte_at = self._clock.time()
        body = b""
        try:
            body = await upstream.read(_MOST_PLAIN_BYTES)
            try:
                plain = call.wire.plain(call.request, body)
            except MISREAD as error:
                raise misread(call.wire) from error
        except BaseException:
            attempt.usage = usage_without_answer(body or upstream.arrived(), call.wire.backend, attempt.input_tokens)
            raise
        slot.succeeded()
        if not upstream.whole:
            await upstream.aclose()
        attempt.output_bytes = size = len(body)
        attempt.chunks = 1
        answer = Whole(plain, attempt)
        attempt.usage = usage = plain.usage
        # most bodies are too short to contradict their reported tokens, so their text need not be read
        if usage is not None and (size > usage.all_output * MOST_PER_TOKEN or not usage.all_input):
            echoed = call.request.max_output_tokens == 0 or "echo" in call.request.body
            attempt.usage = checked_usage(usage, attempt, answer, echoed=echoed)
        attempt.confidence = plain.confidence
        attempt.outcome, attempt.ended_at = "ok", self._clock.time()
        pace = self.paces[0]
        if pace.rest:
            pace.rest -= 1
        else:
            attempt.learn_pace()
        return answer

    async def _failure(self, call: Call, upstream: Upstream) -> BackendError:
        """Convert an error response to a BackendError, and set whether another call may succeed."""
        failure = await self._meaning(call, upstream)
        if not isinstance(failure, NotSpoken):
            failure.heed(upstream.header(b"x-should-retry"))
        return failure

    async def _meaning(self, call: Call, upstream: Upstream) -> BackendError:
        """Convert an error response to a BackendError. The error contains the backend's text only if the backend
        refused the request itself."""
        name, status = self.backend.name, upstream.status
        wait_s = self.kind.retry_after_s(upstream)
        if wait_s is not None:
            wait_s = min(wait_s, _MOST_RETRY_AFTER_S)
        if status == 429:
            error = upstream_error.error_in(await error_body(upstream))
            if error is not None and (BudgetExhausted.code in (error.code, error.kind) or self._unpaid(error)):
                return self._no_quota(wait_s)
            return BackendRateLimited(f"{name} is rate-limited", backend=name, retry_after_s=wait_s)
        if status in _NO_ENDPOINT:
            error = upstream_error.error_in(await error_body(upstream))
            if self._lacks(call.wire, error):
                path, _, _ = self.kind.url(call.request, call.wire).partition("?")
                unspoken = NotSpoken(f"{name} has no endpoint {path} (status {status})", backend=name)
                unspoken.retryable = self._has_other(call.wire)
                if unspoken.retryable:
                    self._forget_endpoint(call.wire.backend)
                return unspoken
        if status == 403 and upstream_error.about_request(upstream_error.error_in(body := await error_body(upstream))):
            return call.wire.refusal(status, body, name)
        if (
            status == DeadlineExceeded.status
            and self.backend.facts.tells_cost
            and (error := upstream_error.error_in(await error_body(upstream))) is not None
            and error.code == DeadlineExceeded.code
        ):
            late = BackendFailed(f"{name} got no answer within the request's deadline", backend=name)
            late.code, late.retryable = DeadlineExceeded.code, False
            return late
        if status == LoopDetected.status:
            return call.wire.refusal(status, await error_body(upstream), name)
        if status in OPERATOR_ERRORS or status < 400:
            problem = operator_error(self.backend, status)
            return BackendFailed(f"{name} {problem} (status {status})", backend=name).of_operator()
        if status in _OVERLOADED:
            return BackendOverloaded(f"{name} is overloaded (status {status})", backend=name, retry_after_s=wait_s)
        if status >= 500 or status in _TEMPORARY:
            return BackendFailed(f"{name} failed (status {status})", backend=name, retry_after_s=wait_s)
        body = await error_body(upstream)
        if self.backend.facts.no_quota and self._unpaid(upstream_error.error_in(body)):
            return self._no_quota(wait_s)
        return call.wire.refusal(status, body, name)

    def _unpaid(self, error: UpstreamError | None) -> bool:
        """Whether the error says that the gateway's account at this provider has no money left. Each kind of
        backend says this in its own way.
        """
        return error is not None and error.kind != "" and error.kind == self.backend.facts.no_quota

    def _no_quota(self, wait_s: float | None) -> BackendRateLimited:
        name = self.backend.name
        problem = f"{name} has no quota left; its operator must check the account behind its `api_key`"
        limited = BackendRateLimited(problem, backend=name, retry_after_s=wait_s)
        limited.no_quota = True
        return limited
