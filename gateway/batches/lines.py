"""One line of a batch: what it must look like, what it asks, and how its result is written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from gateway.dialects import openai_chat
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest, GatewayError

ENDPOINTS: Mapping[str, ModuleType] = {"/v1/chat/completions": openai_chat}
"""Where lines may be sent, and the dialect spoken there."""
MAX_LINES = 50_000
MAX_PROBLEMS = 100
"""More mistakes than these are not worth reading."""
_MAX_ID = 256
_CONTROLS = Controls(priority="batch")
_HANDFUL, _PAUSE_S = 32, 0.0005


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    """From 1."""
    custom_id: str
    body: dict[str, Any]


@dataclass(slots=True)
class Checked:
    """What validation found in a whole file."""

    total: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)
    """As OpenAI tells them: code, message, param, line."""

    def add(self, error: GatewayError, line: int | None) -> None:
        problem = {"code": error.code, "message": error.message, "param": error.param, "line": line}
        self.problems.append(problem)


def numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every line, with its number. Off the loop only. Raises OSError.

    It pauses between two handfuls: a thread that computes for long starves the event loop of the interpreter lock.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            yield number, raw
            if number % _HANDFUL == 0:
                time.sleep(_PAUSE_S)


def read(number: int, raw: bytes, endpoint: str) -> Line:
    """Raises BadRequest naming what is wrong."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"This line is not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise BadRequest("This line is not a JSON object.")
    custom_id = found.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _MAX_ID:
        raise BadRequest(f"custom_id must be a string of 1 to {_MAX_ID} characters.", param="custom_id")
    if found.get("method") != "POST":
        raise BadRequest("method must be POST.", param="method")
    if found.get("url") != endpoint:
        raise BadRequest(f"url must be {endpoint}, the batch's endpoint.", param="url")
    if not isinstance(found.get("body"), dict):
        raise BadRequest("body must be an object: the request itself.", param="body")
    return Line(number, custom_id, found["body"])


def asked(line: Line, endpoint: str, request_id: str) -> CompletionRequest:
    """The request in a line. Raises BadRequest."""
    try:
        raw = orjson.dumps(line.body)
    except orjson.JSONEncodeError as error:  # nested too deep to be written again
        raise BadRequest(f"body cannot be sent: {error}.", param="body") from error
    request: CompletionRequest = ENDPOINTS[endpoint].parse(raw, request_id, _CONTROLS, {})
    if request.stream:
        raise BadRequest("stream must be absent or false: the results of a batch are a file.", param="body.stream")
    return request


def check(path: Path, endpoint: str, max_bytes: int) -> Checked:
    """Validate a whole file, `max_bytes` a line at most. Off the loop only. Raises OSError."""
    checked = Checked()
    seen: dict[str, int] = {}
    for number, raw in numbered(path):
        if not raw.strip():
            continue
        checked.total += 1
        try:
            if len(raw) > max_bytes:
                raise BadRequest(f"This line is longer than the {max_bytes} bytes that a request may have.")
            line = read(number, raw, endpoint)
            asked(line, endpoint, "")
            first = seen.setdefault(line.custom_id, number)
            if first != number:
                raise BadRequest(f"custom_id {line.custom_id!r} is that of line {first} already.", param="custom_id")
        except BadRequest as error:
            checked.add(error, number)
        if checked.total > MAX_LINES:
            checked.add(BadRequest(f"The file has more than {MAX_LINES} lines; split it."), None)
        if len(checked.problems) >= MAX_PROBLEMS or checked.total > MAX_LINES:
            break
    if not checked.total:
        checked.add(BadRequest("The file has no lines."), None)
    return checked


def answered(custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
    """A result: any answer that the endpoint gave, refusals included."""
    response = {"status_code": status, "request_id": request_id, "body": orjson.loads(body)}
    return _result(custom_id, request_id.removeprefix("req_"), response, None)


def refused(custom_id: str, request_id: str, endpoint: str, error: GatewayError) -> bytes:
    """A result: what the endpoint would have said."""
    return answered(custom_id, error.status, request_id, ENDPOINTS[endpoint].error_body(error, request_id))


def unanswered(custom_id: str, batch_id: str, number: int, ending: str) -> bytes:
    """A result: the batch ended (`expired`, `cancelled`) before this line was sent."""
    error = {"code": f"batch_{ending}", "message": f"This request was not sent before the batch was {ending}."}
    if ending == "expired":
        error["message"] = "This request was not sent before the batch's completion window ended."
    return _result(custom_id, f"{batch_id.removeprefix('batch_')}_{number}", None, error)


def _result(custom_id: str, name: str, response: dict[str, Any] | None, error: dict[str, str] | None) -> bytes:
    result = {"id": f"batch_req_{name}", "custom_id": custom_id, "response": response, "error": error}
    return orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE)
