"""Parses a chat request. Validates the fields that the gateway uses, and leaves all other fields unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson

from gateway.dialects.openai_chat.turns import needed_by, read_turns
from gateway.dialects.requests.fields import Wanted, check, read_model
from gateway.dialects.requests.output_limits import MAX_ANSWERS, answers, longest
from gateway.domain.continued import Continued
from gateway.domain.request import CompletionRequest, Controls, Turn
from gateway.errors import BadRequest

MAX_DEPTH = 128
"""Maximum depth of nested JSON. Every JSON library in use can write JSON of this depth."""
_COUNTED_BYTES = 4096
"""Maximum bytes of a body whose brackets are counted. For a larger body, it is faster to stop at `MAX_DEPTH`."""

FORWARDED = frozenset({b"openai-beta", b"x-client-request-id", b"traceparent", b"tracestate"})
"""Headers that are forwarded to the backend. Headers with an organisation or project are not forwarded, because they
belong to the client's own account."""

_NONE: Mapping[bytes, bytes] = MappingProxyType({})


CONVERSATION = "messages"
"""The field with the conversation."""


def parse(
    body: bytes,
    request_id: str,
    controls: Controls,
    headers: Mapping[bytes, bytes],
    continued: Continued | None = None,
) -> CompletionRequest:
    """Parse a request. Raises BadRequest, with the name of the wrong field, if the gateway cannot process the request.

    `continued`: the body, already parsed as the continuation of an earlier request; None: the body must be parsed.
    """
    fields = load_object(body) if continued is None else continued.body
    check(fields, WANTED)
    model = read_model(fields)
    turns = read_turns(fields.get("messages"), () if continued is None else continued.turns)
    stream = fields.get("stream") is True
    forwarded = _NONE
    if not FORWARDED.isdisjoint(headers):
        forwarded = {name: headers[name] for name in headers if name in FORWARDED}
    return CompletionRequest(
        id=request_id,
        dialect="openai_chat",
        raw=body,
        body=fields,
        model=model,
        turns=turns,
        stream=stream,
        max_output_tokens=longest(fields),
        temperature=fields.get("temperature"),
        needs=_needs(fields, turns),
        wants_usage=stream and (fields.get("stream_options") or {}).get("include_usage") is True,
        controls=controls,
        headers=forwarded,
        parallel=answers(fields),
        continued=continued,
    )


def load_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises BadRequest if `body` is anything else, or contains NaN or lone surrogates."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    if type(fields) is not dict:
        raise BadRequest("The body must be a JSON object.")
    if not few_brackets(body) and _depth_exceeds(fields, MAX_DEPTH):
        raise BadRequest(f"The body is nested more than {MAX_DEPTH} levels deep.")
    return fields


def few_brackets(body: bytes) -> bool:
    """Whether `body` has at most MAX_DEPTH opening brackets, so that its nesting cannot be deeper."""
    if len(body) <= _COUNTED_BYTES:
        return body.count(b"{") + body.count(b"[") <= MAX_DEPTH
    without = body.replace(b"{", b"", MAX_DEPTH + 1).replace(b"[", b"", MAX_DEPTH + 1)
    return len(body) - len(without) <= MAX_DEPTH


def _depth_exceeds(fields: dict[str, Any], limit: int) -> bool:
    """Whether `fields` is nested deeper than `limit`. Must not be recursive: a hostile body could exhaust the stack."""
    level: list[Any] = [fields]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


_ANSWERS = Wanted((int,), f"a whole number from 1 to {MAX_ANSWERS}", 1, MAX_ANSWERS)
WANTED = {
    "stream": Wanted((bool,), "true or false"),
    "stream_options": Wanted((dict,), "an object"),
    "n": _ANSWERS,
    "best_of": _ANSWERS,
    "n_cmpl": _ANSWERS,
    "temperature": Wanted((int, float), "a number"),
    "max_tokens": Wanted((int,), "a whole number of at least 1", 1),
    "max_completion_tokens": Wanted((int,), "a whole number of at least 1", 1),
    "tools": Wanted((list,), "an array"),
    "functions": Wanted((list,), "an array"),
    "response_format": Wanted((dict,), "an object"),
    "logprobs": Wanted((bool,), "true or false"),
    "reasoning_effort": Wanted((str,), "a string such as 'low'"),
}


_NOTHING: frozenset[str] = frozenset()
_NEEDY = frozenset({"tools", "functions", "response_format", "logprobs", "reasoning_effort"})


def _needs(fields: dict[str, Any], turns: list[Turn]) -> frozenset[str]:
    needs = needed_by(turns)
    if _NEEDY.isdisjoint(fields):
        return frozenset(needs) if needs else _NOTHING
    if fields.get("tools") or fields.get("functions"):
        needs.add("tools")
    if (fields.get("response_format") or {}).get("type") == "json_schema":
        needs.add("json_schema")
    if fields.get("logprobs"):
        needs.add("logprobs")
    if fields.get("reasoning_effort") not in (None, "none"):
        needs.add("reasoning")
    return frozenset(needs)
