"""Reads a backend's error body, in the common formats."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.errors import (
    BackendError,
    BackendGarbage,
    BackendOverloaded,
    BackendRateLimited,
    BackendRefused,
    StreamBroken,
)

MAX_MESSAGE = 2000
_PASSING = {"overloaded_error": 503, "rate_limit_error": 429}
"""Type of a temporary error → its status code."""
_CREDENTIALS = (401, 402, 403, 407)
_ACCOUNT = re.compile(
    r"api[-_ ]?key|credential|signature|(?:access|auth|security|session|invalid|expired) token|bearer|"
    r"auth(?:enti|ori[sz])|permission|access ?denied|\biam\b|arn:|"
    r"account|billing|credit|balance|quota|payment|organi[sz]ation|project|subscription|workspace|suspended|disabled|"
    r"\bip\b",
    re.IGNORECASE,
)
"""Matches words in the text of a 403 which show that the cause is the calling account or key."""
_CONTENT = re.compile(
    r"usage guidelines|usage polic|content[- _](?:polic|filter|violat|management)|moderation|safety[-_ ]check|"
    r"safety (?:system|reasons|filter)|(?:content|prompt|input|output|request)\b.{0,40}\bflagged",
    re.IGNORECASE,
)
"""Matches words in the text of a 403 which show that the cause is the request's content. They decide even if the text
also names an account or a key, as xAI's does."""
_CODES = {
    "429": "rate_limit_error",
    "rate_limit_exceeded": "rate_limit_error",
    "503": "overloaded_error",
    "529": "overloaded_error",
}
"""Code of a temporary error inside an answer with status 200 → the error's type."""


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
    """The error in the body of a refusal. Reads also bodies of the form `{"message": "…"}`. None for HTML and other
    formats."""
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if error := find_error(read):
        return error
    message = read.get("message") if type(read) is dict else None  # Cohere's, and that of many proxies
    return UpstreamError(message[:MAX_MESSAGE]) if type(message) is str and message else None


def broken(error: UpstreamError | None, otherwise: bytes | str = "no reason given") -> StreamBroken:
    """The exception for an error event in a stream. `otherwise`: the text of the event, which is used if `error` is
    None."""
    if type(otherwise) is bytes:
        otherwise = otherwise[:MAX_MESSAGE].decode(errors="replace")
    summary = "The backend's stream ended with an error"
    failure = StreamBroken(f"{summary}: {error.message if error else otherwise!s}")
    failure.summary = summary
    if error and (kind := passing(error)):
        failure.kind, failure.status = kind, _PASSING[kind]
    return failure


def passing(error: UpstreamError) -> str:
    """The type of a temporary error: `rate_limit_error` or `overloaded_error`; empty for other errors."""
    return error.kind if error.kind in _PASSING else _CODES.get(error.code or "", "")


def in_success(error: UpstreamError) -> BackendError:
    """The exception for a plain answer with status 200 whose body contains an error."""
    kind, summary = passing(error), "The backend answered 200 with an error"
    made = BackendRateLimited if kind == "rate_limit_error" else BackendOverloaded if kind else BackendGarbage
    failure = made(f"{summary}: {error.message}")
    failure.summary = summary
    return failure


def about_request(error: UpstreamError | None) -> bool:
    """Whether a backend answered 403 because of the request: its content, model or region.

    False if the reason is the gateway's account, or if there is no `error`.
    """
    if error is None:
        return False
    text = f"{error.kind} {error.code} {error.message}"
    return _CONTENT.search(text) is not None or not _ACCOUNT.search(text)


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
