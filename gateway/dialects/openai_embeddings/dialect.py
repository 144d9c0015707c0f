"""The client side of OpenAI's embeddings: parses requests, writes errors and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.dialects.openai_chat.dialect import error_body, error_event, status
from gateway.dialects.openai_chat.request import FORWARDED, load_object
from gateway.dialects.openai_completions.inputs import read_inputs
from gateway.dialects.requests.fields import Wanted, check, read_model
from gateway.domain.request import CompletionRequest, Controls

__all__ = ["choices", "error_body", "error_event", "parse", "replayed", "status"]

_WANTED = {
    "encoding_format": Wanted((str,), "'float' or 'base64'"),
    "dimensions": Wanted((int,), "a whole number of at least 1", 1),
}


def parse(body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes]) -> CompletionRequest:
    """Parse a request. Raises BadRequest, with the name of the wrong field, if the gateway cannot process the
    request."""
    fields = load_object(body)
    check(fields, _WANTED)
    model = read_model(fields)
    inputs = read_inputs(fields, "input")
    return CompletionRequest(
        id=request_id,
        dialect="openai_embeddings",
        raw=body,
        body=fields,
        model=model,
        turns=inputs.turns,
        stream=False,
        max_output_tokens=0,
        temperature=None,
        needs=frozenset(),
        controls=controls._replace(untouched=True),
        headers={name: headers[name] for name in headers if name in FORWARDED},
        estimated_tokens=inputs.tokens,
        one_context=False,
        one_model=True,
    )


def choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    """A single choice that represents all vectors of a plain body."""
    return [vectors(len(body["data"]))]


def vectors(count: int) -> dict[str, Any]:
    """A chat choice that represents `count` vectors, so that the answer can be cached and replayed."""
    message = {"role": "assistant", "content": f"{count} vectors"}
    return {"index": 0, "message": message, "finish_reason": "stop"}


def replayed(request: CompletionRequest, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Never called, because embeddings are not streamed."""
    return b"", b""
