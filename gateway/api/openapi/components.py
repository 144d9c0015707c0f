"""Schemas, headers and credentials that several operations share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.api.openapi.operation import OPEN_OBJECT, TEXT, Schema, nullable, optional, record, ref, whole, words
from gateway.dialects.clients import CLIENTS

_DURATION: Schema = {"type": "string", "examples": ["30s", "5m"]}

_MODEL: Schema = {
    "type": "string",
    "minLength": 1,
    "examples": ["auto"],
    "description": "auto, an alias of the team's policy, or the name of a backend or of its model.",
}

REQUEST_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "x-thriftgate-cache": (
        "bypass: neither look up nor store. refresh: store only. only: a cached answer, else 504.",
        words("bypass", "refresh", "only"),
    ),
    "x-thriftgate-cache-tags": ("Labels of the stored answer, separated by commas; at most 16.", TEXT),
    "x-thriftgate-tier": ("Use only backends of this tier.", words("small", "large", "hosted")),
    "x-thriftgate-deadline": ("Answer within this time or fail.", _DURATION),
    "x-thriftgate-tags": ("Labels on the ledger, as feature=search,customer=42; at most 16.", TEXT),
    "x-thriftgate-session": ("Name of a conversation.", TEXT),
    "x-thriftgate-context": ("Do not trim; refuse what does not fit.", words("untouched")),
    "x-thriftgate-priority": ("Give way to interactive requests under load.", words("interactive", "batch")),
    "x-thriftgate-max-usd": ("Most that the request may cost, in USD.", TEXT),
    "x-thriftgate-cache-scope": ("Share answers only with requests that have the same value.", TEXT),
    "x-thriftgate-hops": ("Ids of the gateways that the request has passed.", TEXT),
    "x-litellm-end-user-id": ("The end user, if the body names none.", TEXT),
}
"""Name → (effect, schema of its values)."""

RESPONSE_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "x-request-id": ("The request's id, for the log, the flight record and feedback.", TEXT),
    "x-thriftgate-cache": (
        "Where the answer came from.",
        words("exact", "join", "semantic", "miss", "bypass", "off"),
    ),
    "x-thriftgate-backend": ("The backend that served.", TEXT),
    "x-thriftgate-model": ("Its model.", TEXT),
    "x-thriftgate-difficulty": ("Of the prompt, 0.000 to 1.000.", {"type": "string", "pattern": r"^[01]\.\d{3}$"}),
    "x-thriftgate-trimmed-tokens": ("Tokens that were left out.", whole(1)),
    "x-thriftgate-cached-tokens": ("Input tokens that the backend read from its prompt cache.", whole(1)),
    "x-thriftgate-output-cap": (
        "Most tokens of the answer, where the budget covers no more or the policy allows no more.",
        whole(0),
    ),
    "x-thriftgate-escalated": ("A weak answer was replaced.", words("true")),
    "x-thriftgate-price": ("Unit prices of the answer, for a gateway that called this one.", TEXT),
    "x-thriftgate-cost-usd": (
        "Exact cost of all attempts in USD.",
        {"type": "string", "pattern": r"^\d+(\.\d+)?$"},
    ),
    "x-thriftgate-over-budget": ("Names of budgets that are spent and only warn.", TEXT),
    "x-thriftgate-degraded": ("Parts that were down: state, embedder, grader.", TEXT),
}
"""Name of a response header → (meaning, schema of its values), for answers to inference requests. The first two headers
are always present; all others may be absent."""

SECURITY_SCHEMES: Mapping[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of the gateway."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same, as Anthropic's SDK."},
}

_ERRORS: Mapping[str, Schema] = {
    name: schema for client in CLIENTS.values() for name, schema in client.error_schema.items()
}

SCHEMAS: Mapping[str, Schema] = {
    "Error": {
        "description": "In the shape of the vendor whose path or SDK the client uses.",
        "anyOf": [ref(name) for name in _ERRORS],
    },
    **_ERRORS,
    "Model": record(id=TEXT, object={"const": "model"}, created=whole(0), owned_by=TEXT),
    "AnthropicModel": record(id=TEXT, type={"const": "model"}, display_name=TEXT),
    "AnthropicModels": record(data={"type": "array", "items": ref("AnthropicModel")}, has_more={"type": "boolean"}),
    "ChatRequest": {
        "type": "object",
        "description": "OpenAI's chat completion; fields that are not listed go to the backend as they are.",
        "required": ["model", "messages"],
        "properties": {
            "model": _MODEL,
            "messages": {"type": "array", "minItems": 1, "items": ref("ChatMessage")},
            "stream": nullable({"type": "boolean"}),
            "max_tokens": nullable(whole(1)),
            "max_completion_tokens": nullable(whole(1)),
            "temperature": nullable({"type": "number"}),
            "n": nullable(whole(1, 128)),
            "tools": nullable({"type": "array"}),
            "response_format": nullable(OPEN_OBJECT),
        },
    },
    "ChatMessage": {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"type": "string", "examples": ["user"]},
            "content": {"anyOf": [TEXT, {"type": "array"}, {"type": "null"}]},
        },
    },
    "ChatCompletion": record(
        id=TEXT, object={"const": "chat.completion"}, choices={"type": "array", "items": OPEN_OBJECT}
    ),
    "CompletionRequest": {
        "type": "object",
        "required": ["model", "prompt"],
        "properties": {
            "model": _MODEL,
            "prompt": {},
            "max_tokens": nullable(whole(1)),
            "stream": nullable({"type": "boolean"}),
        },
    },
    "ResponsesRequest": {
        "type": "object",
        "required": ["model", "input"],
        "properties": {
            "model": _MODEL,
            "input": {"anyOf": [TEXT, {"type": "array", "items": OPEN_OBJECT}]},
            "instructions": nullable(TEXT),
            "stream": nullable({"type": "boolean"}),
            "max_output_tokens": nullable(whole(1)),
            "previous_response_id": nullable(TEXT),
            "store": nullable({"type": "boolean"}),
        },
    },
    "MessagesRequest": {
        "type": "object",
        "required": ["model", "max_tokens", "messages"],
        "properties": {
            "model": _MODEL,
            "max_tokens": whole(1),
            "messages": {"type": "array", "minItems": 1, "items": OPEN_OBJECT},
            "system": {"anyOf": [TEXT, {"type": "array", "items": OPEN_OBJECT}]},
            "stream": {"type": "boolean"},
        },
    },
    "EmbeddingsRequest": {
        "type": "object",
        "required": ["model", "input"],
        "properties": {"model": _MODEL, "input": {}, "encoding_format": words("float", "base64")},
    },
    "File": record(id=TEXT, object={"const": "file"}, bytes=whole(0), created_at=whole(0), filename=TEXT, purpose=TEXT),
    "Batch": record(id=TEXT, object={"const": "batch"}, endpoint=TEXT, status=TEXT),
    "MessageBatch": record(
        id=TEXT, type={"const": "message_batch"}, processing_status=TEXT, request_counts=OPEN_OBJECT
    ),
    "Deleted": record(id=TEXT, deleted={"const": True}),
    "Health": record(status=words("ok", "degraded"), parts=OPEN_OBJECT),
    "Status": record(status=TEXT),
    "NotReady": record(status=TEXT, why=TEXT),
    "Feedback": {
        "description": "One of rating, score and cache, with an optional comment.",
        **optional(
            rating=words("good", "bad"),
            score={"type": "number", "minimum": 0, "maximum": 1},
            cache=words("wrong"),
            comment=TEXT,
        ),
    },
    "Usage": {
        "type": "object",
        "description": "Figures of the ledger, as `thriftgate usage --json` prints them.",
        "required": ["budgets", "credits", "objectives", "wrong_hits"],
    },
    "NewKey": {
        "type": "object",
        "required": ["team"],
        "properties": {
            "team": TEXT,
            "name": TEXT,
            "scopes": {"type": "array", "items": words("inference", "usage", "admin")},
            "expires": {"type": ["string", "number"], "description": "Life of the key: 30d, or seconds."},
            "allowed_models": nullable({"type": "array", "items": TEXT}),
        },
    },
}
