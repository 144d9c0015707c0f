"""Reads a backend's error body, in the common formats."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.errors import BackendRefused, StreamBroken

MAX_MESSAGE = 2000
_PASSING = {"overloaded_error": 503, "rate_limit_error": 429}
"""Type of a temporary error → its status code."""
_CREDENTIALS = (401, 402, 403, 407)
_ACCOUNT = re.compile(
    r"api[-_ ]?key|credential|signature|\btoken\b|bearer|auth(?:enti|ori[sz])|permission|access ?denied|\biam\b|arn:|"
    r"account|billing|credit|balance|quota|payment|organi[sz]ation|project|subscription|workspace|suspended|disabled|"
    r"\bip\b",
    re.IGNORECASE,
)
"""Matches words in the text of a 403 which show that the cause is the calling account or key."""


@dataclass(frozen=True, slots=True)
class UpstreamError:
    """The fields of an error that a backend sent."""

    message: str
    kind: str = ""
    code: str | None = None
    param: str | None = None


def find_error(body: Any) -> UpstreamError | None:
    """The error in a parsed body: `{"error": {…} or "…"}`, `{"object": "error", …}` or `{"detail": …}`. None if the
    body contains no error."""
    if type(body) is not dict:
        body = body[0] if type(body) is list and body else None
        if type(body) is not dict:
            return None
    error = body.get("error")
    if not error:
        if body.get("object") == "error" or (body.get("type") == "error" and "message" in body):
            error = body
        elif "choices" in body or not (error := body.get("detail") or body.get("errors")):
            return None
    if type(error) is not dict:
        return UpstreamError(error[:MAX_MESSAGE] if type(error) is str else _dump(error))
    message, code = error.get("message"), error.get("code")
    return UpstreamError(
        message=message[:MAX_MESSAGE] if type(message) is str and message else _dump(error),
        kind=_text(error.get("type")) or "",
        code=str(code) if type(code) is int else _text(code),
        param=_text(error.get("param")),
    )


def _text(value: object) -> str | None:
    return value[:MAX_MESSAGE] if type(value) is str and value else None


def _dump(value: object) -> str:
    return orjson.dumps(value).decode()[:MAX_MESSAGE]


def error_in(body: bytes) -> UpstreamError | None:
    """Like `find_error`, but reads bytes. None for HTML and other formats."""
    try:
        return find_error(orjson.loads(body))
    except orjson.JSONDecodeError:
        return None


def broken(error: UpstreamError | None, otherwise: bytes | str = "no reason given") -> StreamBroken:
    """The exception for an error event in a stream. If `error` is None, the exception contains `otherwise`, the text of
    the event."""
    if type(otherwise) is bytes:
        otherwise = otherwise[:MAX_MESSAGE].decode(errors="replace")
    failure = StreamBroken(f"The backend's stream ended with an error: {error.message if error else otherwise!s}")
    if error and error.kind in _PASSING:
        failure.kind, failure.status = error.kind, _PASSING[error.kind]
    return failure


def about_request(error: UpstreamError | None) -> bool:
    """Whether a status 403 is about the request: its content, model or region. False if it is about the gateway's
    account, or without an `error`."""
    return error is not None and not _ACCOUNT.search(f"{error.kind} {error.code} {error.message}")


def refusal(status: int, error: UpstreamError | None, backend: str) -> BackendRefused:
    """The error for the client after a backend's 4xx. An error about the gateway's own account becomes a 502 without
    details."""
    if status in _CREDENTIALS and not (status == 403 and about_request(error)):
        return BackendRefused(
            f"Backend {backend} does not accept the gateway's credentials ({status}); "
            "its operator must check the backend's api_key, account and permissions.",
            backend=backend,
            status=502,
            code="backend_credentials",
            kind="api_error",
        )
    if error is None:
        return BackendRefused(
            f"Backend {backend} refused the request ({status}) without saying why.", backend=backend, status=status
        )
    return BackendRefused(
        error.message,
        backend=backend,
        status=status,
        code=error.code,
        kind=error.kind or "invalid_request_error",
        param=error.param,
    )
