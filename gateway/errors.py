"""All errors with which the gateway refuses a request or fails.

GatewayError
├── BadRequest 400                 ContextTooLong 400 · UnknownModel 404 · NotFound 404 · MethodNotAllowed 405
│                                  UnknownResponse 400 · BodyTooLarge 413 · UnsupportedMediaType 415
│                                  RequestTimeout 408 · TargetTooLong 414 · KeyReused 422 · HeadTooLarge 431
│                                  ResponseInProgress 409 · SocketExpired 408
├── InvalidKey 401                 ExpiredKey 401
├── Forbidden 403
├── LimitExceeded 429
├── BudgetExhausted 429
├── ToolLoop 400                   an agent repeats the same failing tool call
├── LoopDetected 508                a backend leads back to this gateway
├── CacheOnlyMiss 504
├── NoBackend 503                  nothing is configured; NoAdequateBackend 503: nothing can serve this request
├── DeadlineExceeded 504
├── Overloaded 503                 shutting down, more than can be served, or a bounded queue is full
│                                  ShareExceeded 429: this team's own share of the queue is used up
├── LedgerUnavailable 503          spend could not be recorded, so no call is made
├── BackendError 502               one attempt failed; clients get AllBackendsFailed or BackendRefused
│   ├── BackendUnreachable · BackendTimeout · BackendGarbage · BackendFailed (5xx)
│   │                              BackendOverloaded (503, 529)
│   │                              NotSpoken (404, 405, 501): the backend lacks the dialect's endpoint
│   ├── BackendRateLimited (429)
│   └── BackendRefused (other 4xx): the client's own mistake; the client gets it unchanged
├── AllBackendsFailed 429/502/503
└── StreamBroken 502               broken after the first byte; only an error event can report this

StateUnavailable and EmbedderUnavailable are no GatewayErrors, and no client gets them: their callers catch them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from gateway.domain.text.truncation import cut

_LONGEST_MESSAGE = 4000
"""Maximum characters of an error's message. The message may repeat text of a client or a provider."""
_LONGEST_PARAM = 256


class GatewayError(Exception):
    """An error that a client receives. `message`: the fault and its remedy. `param`: the wrong field, if any.
    `retry_after_s`: seconds after which to try again."""

    status = 500
    code = "internal_error"
    kind = "api_error"
    """The value of OpenAI's `error.type`."""
    retryable = False
    retry_header: bool | None = None
    """The value of the backend's `x-should-retry` header; None if it sent none."""
    needs_operator = False
    """Whether only the gateway's operator can correct the cause, for example a key, an account or an address."""
    no_quota = False
    """Whether the account of the gateway's key at the backend has no quota left. Waiting then does not help."""

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        if len(message) > _LONGEST_MESSAGE:
            message = cut(message, _LONGEST_MESSAGE)
        super().__init__(message)
        self.message = message
        self.param = param if param is None else param[:_LONGEST_PARAM]
        self.retry_after_s = retry_after_s


class BadRequest(GatewayError):
    status, code, kind = 400, "invalid_request", "invalid_request_error"


class ContextTooLong(BadRequest):
    code = "context_length_exceeded"


class UnknownModel(BadRequest):
    status, code = 404, "model_not_found"


class NotFound(BadRequest):
    status, code = 404, "not_found"


class MethodNotAllowed(BadRequest):
    status, code = 405, "method_not_allowed"


class BodyTooLarge(BadRequest):
    status, code = 413, "request_too_large"


class UnsupportedMediaType(BadRequest):
    status, code = 415, "unsupported_media_type"


class RequestTimeout(BadRequest):
    """The client sent its request too slowly. The gateway closes the connection, and does not read the rest of the
    request."""

    status, code, kind, retryable = 408, "request_timeout", "timeout_error", True


class UnknownResponse(BadRequest):
    """The request continues a response that is not stored or has expired."""

    code = "previous_response_not_found"


class KeyReused(BadRequest):
    """Two different requests have the same `Idempotency-Key`."""

    status, code = 422, "idempotency_key_reused"


class TargetTooLong(BadRequest):
    """The path and query string of the request are too long."""

    status, code = 414, "request_target_too_long"


class HeadTooLarge(BadRequest):
    status, code = 431, "request_head_too_large"


class ResponseInProgress(BadRequest):
    """The client sent a second request on a WebSocket before the answer to the first request ended."""

    status, code = 409, "response_in_progress"


class SocketExpired(BadRequest):
    """The WebSocket has reached its maximum age. The error has the code that OpenAI's API uses in this case, so that
    Codex connects again.
    """

    status, code, retryable = 408, "websocket_connection_limit_reached", True


class InvalidKey(GatewayError):
    status, code, kind = 401, "invalid_api_key", "authentication_error"


class ExpiredKey(InvalidKey):
    code = "expired_api_key"


class Forbidden(GatewayError):
    status, code, kind = 403, "forbidden", "permission_error"


class LimitExceeded(GatewayError):
    status, code, kind, retryable = 429, "rate_limit_exceeded", "rate_limit_error", True


class BudgetExhausted(GatewayError):
    status, code, kind = 429, "insufficient_quota", "insufficient_quota"

    def __init__(self, message: str, *, retry_after_s: float | None = None, truncates: bool = False) -> None:
        """`truncates`: how an answer in progress ends. True: as if it reached its length limit. False: with this
        error.
        """
        super().__init__(message, retry_after_s=retry_after_s)
        self.truncates = truncates


class ToolLoop(GatewayError):
    """An agent repeats the same failing tool call. The status is 400, because agents show such an error and do not
    retry."""

    status, code, kind = 400, "tool_loop", "invalid_request_error"


class LoopDetected(GatewayError):
    """The request has passed this gateway already. Another backend may still serve it."""

    status, code, kind = 508, "loop_detected", "invalid_request_error"


class CacheOnlyMiss(GatewayError):
    status, code, kind = 504, "cache_miss", "api_error"


class NoBackend(GatewayError):
    """No backend is configured. A retry would not help, because only the operator can configure a backend."""

    status, code = 503, "no_backend_configured"


class NoAdequateBackend(NoBackend):
    code, retryable = "no_backend_available", True


class DeadlineExceeded(GatewayError):
    status, code, kind, retryable = 504, "deadline_exceeded", "timeout_error", True


class Overloaded(GatewayError):
    status, code, kind, retryable = 503, "overloaded", "overloaded_error", True


class ShareExceeded(Overloaded):
    status, code, kind = 429, "share_exceeded", "rate_limit_error"


class LedgerUnavailable(GatewayError):
    status, code, retryable = 503, "ledger_unavailable", True


class BackendError(GatewayError):
    """One attempt failed. `backend`: name of the backend that was called."""

    status, code, retryable = 502, "backend_error", True
    summary = ""
    """`message` without the text that the backend sent, because that text may repeat the request. Other teams and the
    log get the summary. Empty: `message` has no such text."""

    def __init__(self, message: str, *, backend: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.backend = backend

    def of_operator(self) -> Self:
        """Mark this error as one that only the operator can correct, and return it. The attempt is then not
        repeated."""
        self.retryable, self.needs_operator = False, True
        return self

    def heed(self, should_retry: bytes | None) -> None:
        """Apply the backend's header `x-should-retry`. `should_retry`: the value of the header; None if the backend
        did not send it, and then nothing changes.
        """
        if should_retry in (b"true", b"false"):
            self.retryable = self.retry_header = should_retry == b"true"


class BackendUnreachable(BackendError):
    code = "backend_unreachable"
    refused = False
    """Whether the backend's machine answers, but refuses the connection: no process listens at the port."""


class BackendTimeout(BackendError):
    code = "backend_timeout"


class BackendGarbage(BackendError):
    code = "backend_garbage"


class BackendFailed(BackendError):
    code = "backend_failed"


class BackendOverloaded(BackendFailed):
    """The backend reports that it is overloaded (status 503 or 529)."""

    status, code, kind = 503, "backend_overloaded", "overloaded_error"


class FaultyAnswer(BackendFailed):
    """The model ended without a usable answer, through its own mistake. A second call may succeed. The backend itself
    works."""


class NotSpoken(BackendFailed):
    """The backend has no endpoint for the dialect (wire format) of the request. The request can be sent again in
    another dialect."""


class BackendRateLimited(BackendError):
    status, code, kind = 429, "backend_rate_limited", "rate_limit_error"


class BackendRefused(BackendError):
    """The backend refused the request itself (status 4xx). `status` and the error object come from the backend."""

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        backend: str = "",
        status: int = 400,
        code: str | None = None,
        kind: str = "invalid_request_error",
        param: str | None = None,
    ) -> None:
        super().__init__(message, backend=backend)
        self.status = status
        self.code = code or "backend_refused"
        self.kind = kind
        self.param = param


class StreamBroken(BackendError):
    code = "stream_broken"


_ADVICE = {
    False: "Try again shortly; the attempts are in the request's flight record.",
    True: "The gateway's operator can find the cause with `thriftgate doctor`.",
}
"""Whether only the operator can help → the end of the error's message."""


class AllBackendsFailed(GatewayError):
    """All attempts failed, or no attempt could be made. Status 429: all attempts were rate-limited. 503: no attempt was
    made, or all were rate-limited or overloaded. 502: all other cases."""

    code, retryable = "all_backends_failed", True

    def __init__(self, failures: Sequence[GatewayError], *, others_may_recover: bool = False) -> None:
        """`others_may_recover`: whether a backend that was not called may answer later."""
        limited = bool(failures) and all(isinstance(failure, BackendRateLimited) for failure in failures)
        full = all(isinstance(failure, BackendRateLimited | BackendOverloaded) for failure in failures)
        self.status = 429 if limited else 503 if full else 502
        if limited and all(failure.no_quota for failure in failures):
            self.code, self.kind, self.retryable = BudgetExhausted.code, BudgetExhausted.kind, False
        elif limited:
            self.code, self.kind = LimitExceeded.code, LimitExceeded.kind
        elif failures and full:
            self.kind = "overloaded_error"
        operators = bool(failures) and all(failure.needs_operator and not failure.retryable for failure in failures)
        if operators or (failures and all(failure.retry_header is False for failure in failures)):
            self.retryable = others_may_recover
        waits = [failure.retry_after_s for failure in failures if failure.retry_after_s is not None]
        unreachable = bool(failures) and all(isinstance(failure, BackendUnreachable) for failure in failures)
        what = (
            "; ".join(dict.fromkeys(failure.message.rstrip(".") for failure in failures)) or "every backend is resting"
        )
        super().__init__(
            f"No backend could answer: {what}. {_ADVICE[operators or unreachable]}",
            retry_after_s=min(waits) if waits else (None if failures else 1.0),
        )
        self.failures = tuple(failures)


class StateUnavailable(Exception):
    """The state server does not respond, or not in time. Callers continue without it where they can, and most requests
    are still answered.
    """


class EmbedderUnavailable(Exception):
    """The embedder is unavailable, so texts cannot be converted to vectors. Until it is available, the semantic cache
    and the features that use vectors are off."""
