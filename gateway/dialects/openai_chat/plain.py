"""Reads a plain chat completion."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.upstream_error import find_error, in_success
from gateway.dialects.openai_chat.message import mean_probability, overall_finish
from gateway.dialects.openai_chat.usage import reported
from gateway.domain.request import CompletionRequest
from gateway.errors import BackendGarbage

_NO_COMPLETION = "The backend answered with JSON that is not a chat completion."


def read(request: CompletionRequest, body: bytes) -> Plain:
    """Read a plain completion. The client gets `body` unchanged, with one exception: log-probabilities that only the
    gateway asked for are removed."""
    reply = load_reply(body)
    choices = reply.get("choices")
    if type(choices) is not list or not choices:
        raise BackendGarbage(_NO_COMPLETION)
    confidence, sure = None, False
    for choice in choices:
        if type(choice) is not dict or type(choice.get("message")) is not dict:
            raise BackendGarbage(_NO_COMPLETION)
        if choice.get("logprobs"):
            sure = True
    if sure:
        confidence = mean_probability(choices)
        if not request.body.get("logprobs"):
            body = without_logprobs(body)
    finish = choices[0].get("finish_reason")
    if len(choices) > 1 or type(finish) is not str:
        finish = overall_finish([choice.get("finish_reason") for choice in choices])
    return Plain(body, reported(reply, body), finish, confidence, choices)


def load_reply(body: bytes) -> dict[str, Any]:
    """The JSON object in the body of a 2xx answer. Raises BackendGarbage if the body is no object.

    If the object reports an error, raises a BackendError with the backend's message.
    """
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BackendGarbage("The backend answered with something that is not JSON.") from error
    if type(reply) is not dict:
        raise BackendGarbage("The backend answered with JSON that is not an object.")
    if ("choices" not in reply or "error" in reply) and (reported_error := find_error(reply)):
        raise in_success(reported_error)
    return reply


def without_logprobs(body: bytes) -> bytes:
    """`body` with the `logprobs` of every choice set to null, as in an answer without log-probabilities."""
    spans = [
        span
        for choices, _ in json_splice.find(body, "choices")
        for choice, _ in json_splice.elements(body, choices)
        for key, span in json_splice.members(body, choice)
        if key == "logprobs"
    ]
    return json_splice.replace(body, [(span, b"null") for span in spans])
