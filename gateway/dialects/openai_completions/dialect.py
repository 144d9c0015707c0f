"""The client side of OpenAI's legacy completions: parses requests, writes errors and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.dialects.openai_chat.dialect import error_body, error_event, status
from gateway.dialects.openai_chat.reader import DONE
from gateway.dialects.openai_chat.replay import chunks
from gateway.dialects.openai_chat.request import FORWARDED, load_object
from gateway.dialects.openai_completions.as_chat import TextWriter
from gateway.dialects.openai_completions.inputs import read_inputs
from gateway.dialects.openai_completions.shape import as_chat_choice
from gateway.dialects.requests.fields import Wanted, check, read_model
from gateway.dialects.requests.output_limits import MAX_ANSWERS, answers, longest
from gateway.domain.request import CompletionRequest, Controls

__all__ = ["choices", "error_body", "error_event", "parse", "replayed", "status"]

_ANSWERS = Wanted((int,), f"a whole number from 1 to {MAX_ANSWERS}", 1, MAX_ANSWERS)
_WANTED = {
    "stream": Wanted((bool,), "true or false"),
    "stream_options": Wanted((dict,), "an object"),
    "n": _ANSWERS,
    "best_of": _ANSWERS,
    "n_cmpl": _ANSWERS,
    "max_tokens": Wanted((int,), "a whole number of at least 0", 0),
    "temperature": Wanted((int, float), "a number"),
    "logprobs": Wanted((int,), "a whole number of at least 0", 0),
    "echo": Wanted((bool,), "true or false"),
    "suffix": Wanted((str,), "a string"),
}


def parse(body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes]) -> CompletionRequest:
    """Parse a request. Raises BadRequest, with the name of the wrong field, if the gateway cannot process the
    request."""
    fields = load_object(body)
    check(fields, _WANTED)
    model = read_model(fields)
    prompts = read_inputs(fields, "prompt")
    several = len(prompts.texts)
    stream = fields.get("stream") is True
    return CompletionRequest(
        id=request_id,
        dialect="openai_completions",
        raw=body,
        body=fields,
        model=model,
        turns=prompts.turns,
        stream=stream,
        max_output_tokens=longest(fields, "openai_completions"),
        temperature=fields.get("temperature"),
        needs=frozenset() if fields.get("logprobs") is None else frozenset({"logprobs"}),
        wants_usage=stream and (fields.get("stream_options") or {}).get("include_usage") is True,
        controls=controls,
        headers={name: headers[name] for name in headers if name in FORWARDED},
        parallel=answers(fields) * several,
        estimated_tokens=prompts.tokens,
        one_context=several == 1 and prompts.tokens is None,
        one_model=prompts.tokens is not None,
    )


def choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a plain body, converted to the format of chat."""
    return [as_chat_choice(choice) for choice in body["choices"]]


def replayed(request: CompletionRequest, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Convert a plain `body` to a stream. Returns two values: all events except `[DONE]`, and `[DONE]`."""
    writer = TextWriter(wants_usage=request.wants_usage)
    chat_chunks = chunks({**body, "choices": choices(body)}, wants_usage=False)
    events = b"".join([writer.write(chunk) for chunk in chat_chunks])
    return events + (writer.usage_chunk(body["usage"]) if body.get("usage") else b""), DONE
