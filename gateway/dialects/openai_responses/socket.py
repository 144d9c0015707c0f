"""Messages of the Responses API on a WebSocket. Reads requests from messages, and writes events as messages.

https://developers.openai.com/api/docs/guides/websocket-mode
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.dialects.openai_responses.request import parse
from gateway.dialects.openai_responses.response_object import Ids, response
from gateway.dialects.streams import sse
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest

CREATE, PROCESSED = "response.create", "response.processed"
"""Types of messages from the client. `CREATE` is a request. With `PROCESSED`, Codex reports that it has read a
response; this message needs no answer."""
ENDS = frozenset({"response.completed", "response.incomplete"})
"""Types of the final events of responses that a later request may continue."""
_REALTIME = ("session.", "conversation.", "input_audio_buffer.", "output_audio_buffer.", "transcription_session.")
_OF_TRANSPORT = frozenset({"type", "generate", "stream"})
"""Names of the fields of a message that are not fields of a request."""
MOST_KEPT_BYTES = 8 * 2**20
"""Maximum bytes of JSON of the conversation that is kept for a socket."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The conversation up to the last response of a socket, which the next request may continue."""

    response_id: str
    items: bytes
    """A JSON array with the input and the output of the response, including the earlier conversation."""

    def and_then(self, given: Any) -> orjson.Fragment:
        """Return the conversation followed by `given`, a further input."""
        return _joined(self.items, orjson.dumps(_as_items(given)))


def load(text: str) -> dict[str, Any]:
    """The fields of the request in a message; empty if the message needs no answer. Raises BadRequest if the message is
    not a request."""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The message is not valid JSON: {error}.") from error
    kind = message.get("type") if type(message) is dict else None
    if kind == PROCESSED:
        return {}
    if type(kind) is str and kind.startswith(_REALTIME):
        raise BadRequest(
            f"{kind} belongs to the Realtime API, which is not served here. Send response.create with text or images; "
            "for speech, use /v1/audio (passthrough: [audio] in the team's policy).",
            param="type",
        )
    if kind != CREATE:
        raise BadRequest(
            f"type must be {CREATE}, with the fields of a request to /v1/responses beside it.", param="type"
        )
    if message.get("stream_id") is not None:
        raise BadRequest(
            "stream_id: one response at a time is made on a socket; open another socket.", param="stream_id"
        )
    fields: dict[str, Any] = message
    return fields


def body_of(fields: Mapping[str, Any], kept: Kept | None) -> dict[str, Any]:
    """The body of the equivalent HTTP request. If `fields` continue the conversation `kept`, this conversation is
    inserted."""
    body = {name: value for name, value in fields.items() if name not in _OF_TRANSPORT}
    if kept is not None and body.get("previous_response_id") == kept.response_id:
        del body["previous_response_id"]
        body["input"] = kept.and_then(body.get("input"))
    return {**body, "stream": True}


def kept_after(body: Mapping[str, Any], ended: Mapping[str, Any]) -> Kept | None:
    """The conversation after a response; None if it cannot be continued on this socket. `body`: the request's body.
    `ended`: the response's last event."""
    said = ended.get("response")
    output, name = (said.get("output"), said.get("id")) if type(said) is dict else (None, None)
    if type(output) is not list or type(name) is not str or body.get("previous_response_id") is not None:
        return None
    given = body.get("input")
    items = given if isinstance(given, orjson.Fragment) else orjson.Fragment(orjson.dumps(_as_items(given)))
    joined = orjson.dumps(_joined(orjson.dumps(items), orjson.dumps(output)))
    return Kept(name, joined) if len(joined) <= MOST_KEPT_BYTES else None


def _as_items(given: Any) -> list[Any]:
    if type(given) is str:
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return list(given) if type(given) is list else [] if given is None else [given]


def _joined(one: bytes, two: bytes) -> orjson.Fragment:
    """One JSON array with the elements of both arrays."""
    comma = b"," if one != b"[]" and two != b"[]" else b""
    return orjson.Fragment(one[:-1] + comma + two[1:])


def warmed(body: Mapping[str, Any], request_id: str, now: int) -> tuple[CompletionRequest, list[dict[str, Any]]]:
    """Handle a message with `generate: false`, for which the model generates nothing. Returns the request, and the
    events of a response without output.

    Raises BadRequest.
    """
    request = parse(orjson.dumps(body), request_id, Controls(), {})
    begun = response(
        request,
        response_id=Ids(request_id).response,
        created=now,
        model=request.model,
        status="in_progress",
        output=[],
    )
    usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {**begun, "status": "completed", "completed_at": now, "usage": {**usage, **details}}
    return request, [
        {"type": "response.created", "sequence_number": 0, "response": begun},
        {"type": "response.completed", "sequence_number": 1, "response": whole},
    ]


def messages(block: bytes) -> Iterator[str]:
    """Yield the data of each event in `block`, which consists of whole events. Comments and `[DONE]` are left out."""
    for event in sse.events(block):
        data = sse.payload(event)
        if data and data != b"[DONE]":
            yield data.decode("utf-8", "replace")


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """The message for an error that occurs before the answer has begun. `body`: the body of the error over HTTP."""
    told = orjson.loads(body)
    return orjson.dumps({"type": "error", "status": status, "error": told["error"], "headers": headers}).decode()


def with_status(event: str, status: int) -> str:
    """The event, with the field `status` if it is an error. Codex ignores an error without a status."""
    parsed = orjson.loads(event)
    return orjson.dumps({**parsed, "status": status}).decode() if parsed.get("type") == "error" else event
