"""Purpose, input and output of each route, for the OpenAPI document.

The inference paths are in `INFERENCE`, all others in `OPERATIONS`; tests compare both with the routes.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.api.openapi.dashboard import DASHBOARD
from gateway.api.openapi.operation import (
    EVENTS,
    JSON,
    OPEN_OBJECT,
    READING,
    TEXT,
    WRITING,
    Operation,
    Schema,
    listed,
    nullable,
    query,
    record,
    ref,
    template,
    whole,
    words,
)
from gateway.dialects.client import Shown
from gateway.dialects.clients import CLIENTS

_ASKING = (400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 502, 503, 504)
_PASSED: Mapping[int, Mapping[str, Schema]] = {200: {JSON: OPEN_OBJECT, "application/octet-stream": {}, EVENTS: {}}}
_FORM: Mapping[str, Schema] = {JSON: OPEN_OBJECT, "multipart/form-data": OPEN_OBJECT}


def _inference(id: str, summary: str, body: str, answer: Schema = OPEN_OBJECT, *, streams: bool = True) -> Operation:
    content: dict[str, Schema] = {JSON: answer}
    if streams:
        content[EVENTS] = {}
    return Operation(id, summary, answers={200: content}, body={JSON: ref(body)}, errors=_ASKING, controls=True)


def _passed(id: str, summary: str) -> Operation:
    content = f"{summary} Passed unchanged to the backend of `model`; the team's policy must list it under passthrough."
    return Operation(id, content, answers=_PASSED, body=_FORM, errors=_ASKING, controls=True)


def _own(shown: Shown) -> Operation:
    """The operation of an inference path. `shown`: its description, from the package of the path's dialect."""
    answers: Mapping[int, Mapping[str, Schema]] = {200: {JSON: OPEN_OBJECT}}
    return Operation(shown.id, shown.summary, answers=answers, body={JSON: shown.body}, errors=_ASKING, controls=True)


def _counts() -> dict[tuple[str, str], Operation]:
    counts = [count for client in CLIENTS.values() for count in client.counts]
    return {
        ("POST", template(count.paths[0])): Operation(
            count.shown.id,
            count.shown.summary,
            answers={200: {JSON: record(**{name: whole(0) for name in count.answer(0)})}},
            body={JSON: count.shown.body},
            errors=(*WRITING, 500),
        )
        for count in counts
    }


def _views() -> dict[tuple[str, str], Operation]:
    return {
        (view.method, view.path): Operation(
            view.shown.id,
            view.shown.summary,
            body={JSON: view.shown.body} if view.shown.body else None,
            errors=WRITING if view.shown.body else READING,
        )
        for client in CLIENTS.values()
        for view in client.views
    }


INFERENCE: Mapping[str, Operation] = {
    "/v1/chat/completions": _inference(
        "createChatCompletion", "OpenAI's chat completions, plain or streamed.", "ChatRequest", ref("ChatCompletion")
    ),
    "/v1/completions": _inference("createCompletion", "OpenAI's legacy completions.", "CompletionRequest"),
    "/v1/responses": _inference("createResponse", "OpenAI's Responses, plain or streamed.", "ResponsesRequest"),
    "/v1/messages": _inference("createMessage", "Anthropic's messages, plain or streamed.", "MessagesRequest"),
    "/v1/embeddings": _inference(
        "createEmbedding", "Vectors of texts or tokens, in their order.", "EmbeddingsRequest", streams=False
    ),
    "/v1/audio/speech": _passed("createSpeech", "Speech of a text."),
    "/v1/audio/transcriptions": _passed("createTranscription", "Text of a recording."),
    "/v1/audio/translations": _passed("createTranslation", "English text of a recording."),
    "/v1/images/generations": _passed("createImage", "Images of a prompt."),
    "/v1/images/edits": _passed("editImage", "An image changed by a prompt."),
    "/v1/images/variations": _passed("varyImage", "Variations of an image."),
    "/v1/moderations": _passed("moderate", "Whether a text is harmful."),
    "/v1/rerank": _passed("rerank", "Documents ordered by a query."),
    **{path: _own(shown) for client in CLIENTS.values() for path, shown in client.shown.items()},
}
"""Path → its POST operation."""

_PAGES = (
    query("limit", "Most entries of the page.", whole(1)),
    query("after", "Id of the last entry of the page before.", TEXT),
    query("order", "By time of creation.", words("asc", "desc")),
)
_ANTHROPIC_PAGES = (
    query("limit", "Most entries of the page.", whole(1, 1000)),
    query("after_id", "Id of the last entry of the page before.", TEXT),
    query("before_id", "Id of the first entry of the page after.", TEXT),
)
_USAGE = (
    query("since", "A duration such as 7d, or a date.", TEXT),
    query("until", "Likewise.", TEXT),
    query("by", "Dimensions, separated by commas: model, team, key, tag:NAME …", TEXT),
    query("savings", "With savings?", words("true", "false")),
    query("team", "Of this team; for admin keys.", TEXT),
)
_NEW_FILE: Mapping[str, Schema] = {
    "multipart/form-data": {
        "type": "object",
        "required": ["file", "purpose"],
        "properties": {"file": {"type": "string", "format": "binary"}, "purpose": words("batch")},
    }
}
_BATCHED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings")
_BATCH: Mapping[int, Mapping[str, Schema]] = {200: {JSON: ref("Batch")}}
_MESSAGE_BATCH: Mapping[int, Mapping[str, Schema]] = {200: {JSON: ref("MessageBatch")}}
_LINES: Mapping[str, Schema] = {"application/jsonl": TEXT}
_STATUS: Mapping[str, Schema] = {JSON: ref("Status")}
_ADMIN = ("admin",)
_OBJECTS: Mapping[int, Mapping[str, Schema]] = {200: {JSON: {"type": "array", "items": OPEN_OBJECT}}}


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/"): Operation("root", "Says that the gateway runs.", (), {200: {JSON: OPEN_OBJECT}}, errors=()),
    ("GET", "/openapi.json"): Operation("openapi", "This document.", (), errors=()),
    ("GET", "/v1/models"): Operation(
        "listModels",
        "Names that this key may ask for; in Anthropic's shape for clients that send `anthropic-version`.",
        answers={200: {JSON: {"anyOf": [listed("Model"), ref("AnthropicModels")]}}},
        query=(
            query("limit", "Most entries of the page, 1 to 1000; read in Anthropic's shape only.", TEXT),
            *_ANTHROPIC_PAGES[1:],
        ),
    ),
    ("GET", "/v1/models/{name}"): Operation(
        "getModel", "One of these names.", answers={200: {JSON: {"anyOf": [ref("Model"), ref("AnthropicModel")]}}}
    ),
    **_counts(),
    **_views(),
    ("GET", "/v1/responses/{id}"): Operation(
        "getResponse", "A stored response.", query=(query("stream", "Not supported.", words("false")),)
    ),
    ("DELETE", "/v1/responses/{id}"): Operation(
        "deleteResponse", "Delete a stored response.", answers={200: {JSON: ref("Deleted")}}
    ),
    ("GET", "/v1/responses/{id}/input_items"): Operation(
        "listInputItems", "The input of a stored response.", query=_PAGES
    ),
    ("POST", "/v1/responses/{id}/cancel"): Operation(
        "cancelResponse", "Always 400: no response is made in the background.", answers={}, errors=WRITING
    ),
    ("POST", "/v1/files"): Operation(
        "uploadFile",
        "Upload the lines of a batch.",
        answers={200: {JSON: ref("File")}},
        body=_NEW_FILE,
        errors=WRITING,
    ),
    ("GET", "/v1/files"): Operation(
        "listFiles",
        "Files of this key.",
        answers={200: {JSON: listed("File")}},
        query=(*_PAGES, query("purpose", "Of this purpose only.", TEXT)),
    ),
    ("GET", "/v1/files/{id}"): Operation("getFile", "One file.", answers={200: {JSON: ref("File")}}),
    ("DELETE", "/v1/files/{id}"): Operation("deleteFile", "Delete a file.", answers={200: {JSON: ref("Deleted")}}),
    ("GET", "/v1/files/{id}/content"): Operation("downloadFile", "The bytes of a file.", answers={200: _LINES}),
    ("POST", "/v1/batches"): Operation(
        "createBatch",
        "Run the lines of a file in the background.",
        answers=_BATCH,
        body={
            JSON: {
                "type": "object",
                "required": ["input_file_id", "endpoint", "completion_window"],
                "properties": {"input_file_id": TEXT, "endpoint": words(*_BATCHED), "completion_window": words("24h")},
            }
        },
        errors=(*WRITING, 422, 429),
        controls=True,
    ),
    ("GET", "/v1/batches"): Operation(
        "listBatches", "Batches of this key.", answers={200: {JSON: listed("Batch")}}, query=_PAGES
    ),
    ("GET", "/v1/batches/{id}"): Operation("getBatch", "One batch.", answers=_BATCH),
    ("POST", "/v1/batches/{id}/cancel"): Operation("cancelBatch", "Cancel a batch.", answers=_BATCH, errors=WRITING),
    ("POST", "/v1/messages/batches"): Operation(
        "createMessageBatch",
        "Run messages in the background.",
        answers=_MESSAGE_BATCH,
        body={JSON: record(requests={"type": "array", "items": OPEN_OBJECT})},
        errors=(*WRITING, 422, 429),
        controls=True,
    ),
    ("GET", "/v1/messages/batches"): Operation(
        "listMessageBatches", "Message batches of this key.", query=_ANTHROPIC_PAGES
    ),
    ("GET", "/v1/messages/batches/{id}"): Operation("getMessageBatch", "One message batch.", answers=_MESSAGE_BATCH),
    ("DELETE", "/v1/messages/batches/{id}"): Operation("deleteMessageBatch", "Delete a message batch that has ended."),
    ("POST", "/v1/messages/batches/{id}/cancel"): Operation(
        "cancelMessageBatch", "Cancel a message batch.", answers=_MESSAGE_BATCH, errors=WRITING
    ),
    ("GET", "/v1/messages/batches/{id}/results"): Operation(
        "getMessageBatchResults", "Results of a message batch.", answers={200: {"application/x-jsonl": TEXT}}
    ),
    ("GET", "/v1/requests/{id}"): Operation(
        "getRequest", "The flight record of a request: decision, candidates, attempts, cost.", ("inference", "admin")
    ),
    ("POST", "/v1/requests/{id}/feedback"): Operation(
        "rateRequest",
        "Say whether an answer was good.",
        ("inference", "admin"),
        {201: {JSON: record(heard={"const": True})}},
        {JSON: ref("Feedback")},
        errors=WRITING,
    ),
    ("GET", "/v1/usage"): Operation(
        "getUsage", "Usage and cost of the team.", ("usage", "admin"), {200: {JSON: ref("Usage")}}, query=_USAGE
    ),
    ("GET", "/metrics"): Operation(
        "getMetrics", "Metrics in Prometheus' text format.", _ADMIN, {200: {"text/plain": TEXT}}
    ),
    ("GET", "/health"): Operation("getHealth", "Parts and their state.", (), {200: {JSON: ref("Health")}}, errors=()),
    ("GET", "/health/live"): Operation("getLive", "200 while the process runs.", (), {200: _STATUS}, errors=()),
    ("GET", "/health/ready"): Operation(
        "getReady", "200 when requests can be answered.", (), {200: _STATUS, 503: {JSON: ref("NotReady")}}, errors=()
    ),
    **DASHBOARD,
    ("GET", "/admin/fleet"): Operation("getFleet", "State of the backends.", _ADMIN, _OBJECTS),
    ("GET", "/admin/usage"): Operation(
        "getAllUsage", "Usage and cost of all teams.", _ADMIN, {200: {JSON: ref("Usage")}}, query=_USAGE
    ),
    ("GET", "/admin/policies"): Operation("getPolicies", "Policies in force.", _ADMIN),
    ("POST", "/admin/policies/reload"): Operation(
        "reloadPolicies",
        "Read the policies again; 409 where a file is wrong, and the old ones stay.",
        _ADMIN,
        {status: {JSON: record(reloaded={"type": "boolean"}, problem=nullable(TEXT))} for status in (200, 409)},
        errors=WRITING,
    ),
    ("GET", "/admin/keys"): Operation("listKeys", "Keys, without their secrets.", _ADMIN, _OBJECTS),
    ("POST", "/admin/keys"): Operation(
        "createKey",
        "Create a key; its secret is shown once.",
        _ADMIN,
        {201: {JSON: record(key=TEXT, id=TEXT, team=TEXT)}},
        {JSON: ref("NewKey")},
        errors=WRITING,
    ),
    ("DELETE", "/admin/keys"): Operation(
        "revokeTeamKeys",
        "End all keys of a team.",
        _ADMIN,
        query=(
            query("team", "The team.", {"type": "string", "minLength": 1}, required=True),
            query("confirm", "Must be true.", words("true"), required=True),
        ),
    ),
    ("DELETE", "/admin/keys/{id}"): Operation("revokeKey", "End a key with its lineage.", _ADMIN),
    ("POST", "/admin/backends/{name}/drain"): Operation(
        "drainBackend",
        "Send the backend no new requests, on all workers.",
        _ADMIN,
        body={JSON: {"type": "object", "properties": {"for": {"type": ["string", "number"]}, "reason": TEXT}}},
        errors=WRITING,
    ),
    ("POST", "/admin/backends/{name}/undrain"): Operation(
        "undrainBackend", "Send it requests again.", _ADMIN, errors=WRITING
    ),
    ("GET", "/admin/alerts"): Operation(
        "listAlerts",
        "Alerts and their deliveries, the latest first.",
        _ADMIN,
        _OBJECTS,
        query=(
            query("team", "Of this team.", TEXT),
            query("limit", "Most entries.", whole(1, 1000)),
            query("dead", "Deliveries that are not tried any more.", words("0", "1", "true", "false")),
        ),
    ),
    ("POST", "/admin/alerts"): Operation(
        "changeAlerts",
        "Acknowledge an alert, or try failed deliveries again.",
        _ADMIN,
        body={JSON: {"anyOf": [record(acknowledge=TEXT), record(retry_dead_letters={"const": True})]}},
        errors=WRITING,
    ),
}
"""(Method, path) → its operation. OpenAI's paths are also served without `/v1`."""
