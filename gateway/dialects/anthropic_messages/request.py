"""Parses a messages request: validates the fields that the gateway uses."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from gateway.dialects.anthropic_messages.turns import has_images, read_turns
from gateway.dialects.openai_chat.request import load_object
from gateway.dialects.requests.fields import Wanted, check, read_model
from gateway.dialects.requests.output_limits import foreign_answers, longest
from gateway.dialects.translate.chat_to_messages.translator import VERSION
from gateway.domain.continued import Continued
from gateway.domain.request import CompletionRequest, Controls, Turn
from gateway.errors import BadRequest

_FORWARDED = frozenset({b"anthropic-version", b"anthropic-beta", b"x-client-request-id", b"traceparent", b"tracestate"})
"""Names of headers that are sent to the backend. Headers with a key, workspace or profile are not sent, because they
belong to the client's own account."""

THREAD = "thread"
"""The field with which a client asks Anthropic to store the conversation, so that later requests contain only the new
messages (beta `message-threads`)."""
_WANTED = {
    "max_tokens": Wanted((int,), "a whole number of at least 0", least=0),
    "stream": Wanted((bool,), "true or false"),
    "system": Wanted((str, list), "a string or an array of text blocks"),
    "temperature": Wanted((int, float), "a number"),
    "stop_sequences": Wanted((list,), "an array of strings"),
    "tools": Wanted((list,), "an array"),
    "tool_choice": Wanted((dict,), "an object with a type"),
    "thinking": Wanted((dict,), "an object with a type"),
    "output_config": Wanted((dict,), "an object"),
    "output_format": Wanted((dict,), "an object with a type"),
    "metadata": Wanted((dict,), "an object"),
}


_IMAGES = attrgetter("images")
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
    request = parse_prompt(body, request_id, controls, headers, continued)
    if request.body.get("max_tokens") is None:
        raise BadRequest("max_tokens is required: the most tokens that the answer may have.", param="max_tokens")
    return request


def parse_prompt(
    body: bytes,
    request_id: str,
    controls: Controls,
    headers: Mapping[bytes, bytes],
    continued: Continued | None = None,
) -> CompletionRequest:
    """Parse a request for a token count. Such a request may omit `max_tokens`. Raises BadRequest with the name of the
    wrong field.

    `continued`: the body, already parsed as the continuation of an earlier request; None: the body must be parsed.
    """
    fields = load_object(body) if continued is None else continued.body
    check(fields, _WANTED)
    if fields.get(THREAD):
        raise BadRequest(f"{THREAD} is not served: send all messages of the conversation.", param=THREAD)
    model = read_model(fields)
    known = () if continued is None else continued.turns
    turns = read_turns(fields.get("system"), fields.get("messages"), known)
    stream = fields.get("stream") is True
    return CompletionRequest(
        id=request_id,
        dialect="anthropic_messages",
        raw=body,
        body=fields,
        model=model,
        turns=turns,
        stream=stream,
        max_output_tokens=longest(fields, "anthropic_messages"),
        temperature=fields.get("temperature"),
        needs=_needs(fields, turns),
        wants_usage=stream,
        controls=controls,
        headers=_forwarded(headers),
        parallel=foreign_answers(fields),
        continued=continued,
    )


def _forwarded(headers: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The headers to forward, without the default `anthropic-version`."""
    found = {name: value for name, value in headers.items() if name in _FORWARDED}
    if found.get(b"anthropic-version") == VERSION:
        del found[b"anthropic-version"]
    return found


def _needs(fields: dict[str, Any], turns: list[Turn]) -> frozenset[str]:
    """The capabilities that a backend needs. Adaptive thinking and effort need no capability, because a model can
    ignore them."""
    needs = set()
    if fields.get("tools") or any(turn.calls or turn.results for turn in turns):
        needs.add("tools")
    if any(map(_IMAGES, turns)) and has_images(fields["messages"]):
        needs.add("vision")
    if output_schema(fields) is not None:
        needs.add("json_schema")
    if (fields.get("thinking") or {}).get("type") == "enabled":
        needs.add("reasoning")
    return frozenset(needs)


def output_schema(fields: Mapping[str, Any]) -> Any:
    """The JSON schema that the answer must follow; None if the request contains no schema."""
    form = (fields.get("output_config") or {}).get("format") or fields.get("output_format")
    return form.get("schema") if type(form) is dict and form.get("type") == "json_schema" else None
