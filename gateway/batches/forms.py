"""The formats of the lines of a batch, for OpenAI and Anthropic: lines with requests and lines with results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from gateway.dialects.clients import PATHS
from gateway.dialects.json_splice import find
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest, GatewayError

MESSAGES = "/v1/messages"
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_ID = 256
_BREAKS = bytes.maketrans(b"\r\n", b"  ")
"""Translation that replaces line breaks with spaces. A result must be one line, and JSON has line breaks only between
tokens."""


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    """Line number, from 1."""
    custom_id: str
    body: bytes
    """The bytes of the request as the client wrote them."""
    fields: dict[str, Any]
    """The parsed request."""


class Form(Protocol):
    """The format of one vendor's batches."""

    endpoint: str
    prompt: tuple[str, ...]
    """The request's fields that form the prompt, in the order in which a model reads them. If empty, the lines of a
    batch are not ordered by the beginnings of their prompts."""
    most: int
    """Maximum lines of one batch."""

    def place(self, number: int) -> str:
        """The name of a line in error messages. `number`: the line's number, from 1."""
        ...

    def read(self, number: int, raw: bytes) -> Line:
        """Parse a line. Raises BadRequest if the line is invalid. The fields of the request inside are not checked."""
        ...

    def answered(self, custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
        """Make the line of a result from the answer `body`. Raises JSONDecodeError if `body` is not JSON."""
        ...

    def refused(self, custom_id: str, request_id: str, error: GatewayError) -> bytes:
        """Make the line of a result from an error. The endpoint reports errors of single requests in the same
        format."""
        ...

    def unanswered(self, custom_id: str, name: str, ending: str) -> bytes:
        """Make the line of a result for a request that was never sent. `name`: unique name of the request. `ending`:
        the batch's status, `expired` or `cancelled`."""
        ...

    def unsent(self, result: Mapping[str, Any]) -> bool:
        """Return whether `result` is the line of a request that was never sent."""
        ...


def asked(
    line: Line, endpoint: str, request_id: str, controls: Controls, headers: Mapping[bytes, bytes]
) -> CompletionRequest:
    """Parse the request in a line, as the endpoint would. Raises BadRequest."""
    request = PATHS[endpoint].parse(line.body, request_id, controls, headers)
    if request.stream:
        raise BadRequest("stream must be absent or false: the results of a batch are a file.", param="stream")
    return request


class OpenAIForm:
    """OpenAI's format. A request is `{"custom_id", "method", "url", "body"}`; a result is `{"id", "custom_id",
    "response", "error"}`."""

    most = 50_000

    def __init__(self, endpoint: str, prompt: tuple[str, ...]) -> None:
        self.endpoint, self.prompt = endpoint, prompt

    def place(self, number: int) -> str:
        return f"line {number}"

    def read(self, number: int, raw: bytes) -> Line:
        found = _object(raw)
        custom_id = found.get("custom_id")
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _LONGEST_ID:
            raise BadRequest(f"custom_id must be a string of 1 to {_LONGEST_ID} characters.", param="custom_id")
        if found.get("method") != "POST":
            raise BadRequest("method must be POST.", param="method")
        if found.get("url") != self.endpoint:
            raise BadRequest(f"url must be {self.endpoint}, the batch's endpoint.", param="url")
        if not isinstance(found.get("body"), dict):
            raise BadRequest("body must be an object: the request itself.", param="body")
        return Line(number, custom_id, _member(raw, "body"), found["body"])

    def answered(self, custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
        response = {"status_code": status, "request_id": request_id, "body": _one_line(body)}
        return self._result(custom_id, request_id.removeprefix("req_"), response, None)

    def refused(self, custom_id: str, request_id: str, error: GatewayError) -> bytes:
        dialect = PATHS[self.endpoint]
        return self.answered(custom_id, dialect.status(error), request_id, dialect.error_body(error, request_id))

    def unanswered(self, custom_id: str, name: str, ending: str) -> bytes:
        error = {"code": f"batch_{ending}", "message": f"This request was not sent before the batch was {ending}."}
        if ending == "expired":
            error["message"] = "This request was not sent before the batch's completion window ended."
        return self._result(custom_id, name, None, error)

    def unsent(self, result: Mapping[str, Any]) -> bool:
        return result["response"] is None

    def _result(
        self, custom_id: str, name: str, response: dict[str, Any] | None, error: dict[str, str] | None
    ) -> bytes:
        result = {"id": f"batch_req_{name}", "custom_id": custom_id, "response": response, "error": error}
        return orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE)


class MessagesForm:
    """Anthropic's format. A request is `{"custom_id", "params"}`; a result is `{"custom_id", "result"}`."""

    endpoint = MESSAGES
    prompt: tuple[str, ...] = ("tools", "system", "messages")
    most = 100_000
    _endings: Mapping[str, str] = {"cancelled": "canceled", "expired": "expired"}

    def place(self, number: int) -> str:
        return f"requests.{number - 1}"

    def read(self, number: int, raw: bytes) -> Line:
        found = _object(raw)
        custom_id = found.get("custom_id")
        if not isinstance(custom_id, str) or not _ID.fullmatch(custom_id):
            raise BadRequest(f"custom_id must be a string that matches ^{_ID.pattern}$.", param="custom_id")
        if not isinstance(found.get("params"), dict):
            raise BadRequest("params must be an object: the request itself.", param="params")
        return Line(number, custom_id, _member(raw, "params"), found["params"])

    def answered(self, custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
        return self._result(custom_id, {"type": "succeeded", "message": _one_line(body)})

    def refused(self, custom_id: str, request_id: str, error: GatewayError) -> bytes:
        body = PATHS[self.endpoint].error_body(error, request_id)
        return self._result(custom_id, {"type": "errored", "error": _one_line(body)})

    def unanswered(self, custom_id: str, name: str, ending: str) -> bytes:
        return self._result(custom_id, {"type": self._endings[ending]})

    def unsent(self, result: Mapping[str, Any]) -> bool:
        return result["result"]["type"] in self._endings.values()

    def _result(self, custom_id: str, result: dict[str, Any]) -> bytes:
        return orjson.dumps({"custom_id": custom_id, "result": result}, option=orjson.OPT_APPEND_NEWLINE)


ENDPOINTS: Mapping[str, OpenAIForm] = {
    endpoint: OpenAIForm(endpoint, prompt)
    for endpoint, prompt in {
        "/v1/chat/completions": ("response_format", "tools", "functions", "messages"),
        "/v1/completions": ("prompt",),
        "/v1/responses": ("text", "tools", "instructions", "input"),
        "/v1/embeddings": (),
    }.items()
    if endpoint in PATHS
}
"""Endpoint → format of OpenAI's batches for this endpoint."""
FORMS: Mapping[str, Form] = {**ENDPOINTS, MESSAGES: MessagesForm()}


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"This is not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise BadRequest("This is not a JSON object.")
    return found


def _member(raw: bytes, key: str) -> bytes:
    """The bytes of the member `key` of the JSON object `raw`. They are not changed: number formats and the order of
    keys stay."""
    start, end = find(raw, key)[-1]
    return raw[start:end]


def _one_line(body: bytes) -> orjson.Fragment:
    """The `body` as one line. Line breaks are replaced, and everything else stays unchanged. Raises JSONDecodeError."""
    orjson.loads(body)
    return orjson.Fragment(body.translate(_BREAKS).strip())
