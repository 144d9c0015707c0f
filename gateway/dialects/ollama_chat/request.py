"""Parses a request of Ollama's chat and converts it to a chat request, which the rest of the gateway uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from gateway.dialects.openai_chat import request as chat_request
from gateway.dialects.requests.fields import Wanted, check, read_model
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest

THINKS = "think"
"""A key in `CompletionRequest.echoed`. Its value is whether the client wants to see the model's thinking."""
OWN = "ollama"
"""A key in `CompletionRequest.echoed`. Its value is the request as the client sent it."""
EXTRAS = "ollama"
"""A key in `CompletionRequest.body`. Its value has the fields and options that chat does not have and that may change
the answer of an Ollama server, so they are part of the cache's key."""

_WANTED = {
    "stream": Wanted((bool,), "true or false"),
    "messages": Wanted((list,), "an array"),
    "tools": Wanted((list,), "an array"),
    "format": Wanted((str, dict), "'json' or a JSON schema"),
    "options": Wanted((dict,), "an object"),
    "think": Wanted((bool, str), "true, false, or an effort such as 'low'"),
    "logprobs": Wanted((bool,), "true or false"),
}
_OPTIONS = ("temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty")
"""Names of the options that have the same name in chat."""
_NUMBER = Wanted((int, float), "a number")
_WANTED_OPTIONS = {
    **dict.fromkeys(("temperature", "top_p", "presence_penalty", "frequency_penalty"), _NUMBER),
    "seed": Wanted((int,), "a whole number"),
    "stop": Wanted((list, str), "an array of strings"),
    "num_predict": Wanted((int,), "a whole number"),
}
_IN_CHAT = frozenset({*_WANTED, "model", "keep_alive"})
"""Names of the fields that chat has too, and of the fields that do not change an answer."""
_ROLES = frozenset({"system", "user", "assistant", "tool"})
_EFFORT = "medium"
"""The reasoning effort for `think: true`."""
_IMAGES = {"iVBOR": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}
"""First characters of an image in base64 → format of the image. Needed because Ollama's images have no media type."""


def parse(body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes]) -> CompletionRequest:
    """Parse a request. Raises BadRequest, with the name of the field, if the gateway cannot translate the request."""
    fields = chat_request.load_object(body)
    check(fields, _WANTED)
    if fields.get("logprobs"):
        raise BadRequest("logprobs are not translated: leave them out.", param="logprobs")
    try:
        chat = _chat(fields)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadRequest("The body has a value of the wrong type in messages, tools or options.") from error
    if fields.get("stream") is not False:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    parsed = chat_request.parse(orjson.dumps(chat), request_id, controls, headers)
    known = {**parsed.body, EXTRAS: extras} if (extras := _extras(fields)) else parsed.body
    return replace(parsed, dialect="ollama_chat", body=known, echoed={THINKS: bool(fields.get("think")), OWN: fields})


def _extras(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields and options that chat does not have."""
    beside = {name: value for name, value in fields.items() if name not in _IN_CHAT and value is not None}
    options = {name: value for name, value in (fields.get("options") or {}).items() if name not in _WANTED_OPTIONS}
    return {**beside, "options": options} if options else beside


def plain_name(model: str) -> str:
    """The name of the model without Ollama's default tag. Clients of Ollama may add this tag to a name."""
    return model.removesuffix(":latest")


def _chat(fields: dict[str, Any]) -> dict[str, Any]:
    options = fields.get("options") or {}
    check(options, _WANTED_OPTIONS)
    chat = {"model": plain_name(read_model(fields)), "messages": _messages(fields.get("messages") or [])}
    chat |= {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    most = options.get("num_predict")
    if most is not None and most > 0:  # in Ollama, -1 and -2 mean no limit
        chat["max_completion_tokens"] = most
    if fields.get("tools"):
        chat["tools"] = fields["tools"]
    return {**chat, **_form(fields.get("format")), **_effort(fields.get("think"))}


def _form(form: Any) -> dict[str, Any]:
    if not form:
        return {}
    if type(form) is dict:
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}}
    if form != "json":
        raise BadRequest("format must be 'json' or a JSON schema.", param="format")
    return {"response_format": {"type": "json_object"}}


def _effort(think: Any) -> dict[str, Any]:
    return {"reasoning_effort": _EFFORT if think is True else think} if think else {}


def _messages(given: list[Any]) -> list[dict[str, Any]]:
    if not given:
        raise BadRequest("messages must have at least one message; no model has to be loaded here.", param="messages")
    calls = _Calls()
    return [_message(message, calls, f"messages[{index}]") for index, message in enumerate(given)]


def _message(message: Any, calls: _Calls, where: str) -> dict[str, Any]:
    if type(message) is not dict or message.get("role") not in _ROLES:
        raise BadRequest(f"{where}.role must be system, user, assistant or tool.", param=f"{where}.role")
    role, content = message["role"], message.get("content")
    if content is not None and type(content) is not str:
        raise BadRequest(f"{where}.content must be a string.", param=f"{where}.content")
    said: dict[str, Any] = {"role": role, "content": content or ""}
    if role == "tool":
        return {**said, "tool_call_id": calls.answered(message, where)}
    if role == "assistant":
        made = [calls.made(call) for call in message.get("tool_calls") or ()]
        thought = message.get("thinking")
        return {**said, **({"reasoning_content": thought} if thought else {}), **({"tool_calls": made} if made else {})}
    if images := message.get("images"):
        parts = [_image(image, f"{where}.images[{index}]") for index, image in enumerate(images)]
        said["content"] = [*([{"type": "text", "text": content}] if content else []), *parts]
    return said


def _image(image: Any, where: str) -> dict[str, Any]:
    kind = next((form for begin, form in _IMAGES.items() if type(image) is str and image.startswith(begin)), None)
    if kind is None:
        raise BadRequest(f"{where} must be a PNG, JPEG, GIF or WebP image in base64.", param=where)
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{image}"}}


class _Calls:
    """Assigns ids to tool calls that have none. A result may lack an id too. Then the result belongs to the first call
    with the same name that has no result yet."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []
        """(Name, id) of each call that has no result yet."""
        self._made = 0

    def made(self, call: dict[str, Any]) -> dict[str, Any]:
        self._made += 1
        function, name = call["function"], str(call.get("id") or f"call_{self._made}")
        self._waiting.append((function["name"], name))
        given = orjson.dumps(function.get("arguments") or {}).decode()
        return {"id": name, "type": "function", "function": {"name": function["name"], "arguments": given}}

    def answered(self, message: dict[str, Any], where: str) -> str:
        """The id of the call to which `message` is the result. If the message has neither id nor name, it belongs to
        the oldest call that has no result yet."""
        call_id, name = message.get("tool_call_id"), message.get("tool_name") or message.get("name")
        for place, (called, known) in enumerate(self._waiting):
            if known == call_id or (not call_id and name in (None, "", called)):
                del self._waiting[place]
                return known
        raise BadRequest(f"{where} answers no call before it.", param=where)
