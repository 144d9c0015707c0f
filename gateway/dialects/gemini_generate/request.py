"""Parses a generateContent request and converts it to a chat request, which the rest of the gateway uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects.gemini_generate.contents import messages
from gateway.dialects.openai_chat import request as chat_request
from gateway.dialects.requests.fields import Wanted, check
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest

SHOWS_THOUGHTS = "includeThoughts"
"""A key in `CompletionRequest.echoed`. Its value is whether the client wants to see the model's thinking."""
OWN = "gemini"
"""A key in `CompletionRequest.echoed`. Its value is the request as the client sent it, with names in camelCase."""
EXTRAS = "gemini"
"""A key in `CompletionRequest.body`. Its value has the fields that chat cannot express exactly. They may change the
answer of Gemini, so they are part of the cache's key."""

_CONFIG = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_completion_tokens",
    "stopSequences": "stop",
    "candidateCount": "n",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_WANTED = {
    "temperature": Wanted((int, float), "a number"),
    "topP": Wanted((int, float), "a number"),
    "topK": Wanted((int, float), "a number"),
    "maxOutputTokens": Wanted((int,), "a whole number of at least 1", 1),
    "stopSequences": Wanted((list,), "an array of strings"),
    "candidateCount": Wanted((int,), "a whole number of at least 1", 1),
    "seed": Wanted((int,), "a whole number"),
    "responseMimeType": Wanted((str,), "a string"),
    "responseSchema": Wanted((dict,), "an object"),
    "responseJsonSchema": Wanted((dict,), "an object"),
    "thinkingConfig": Wanted((dict,), "an object"),
}
_REFUSED = ("cachedContent",)
_KNOWN = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "labels", "model", "stream"}
)
_SAFETY = "safetySettings"
_OF_PARTS = frozenset({"text", "thought", "thoughtSignature", "inlineData", "functionCall", "functionResponse"})
_REFUSED_CONFIG = ("responseLogprobs", "speechConfig", "imageConfig")
_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}
_SNAKE = re.compile(r"_([a-z])")
_FREE = frozenset({"args", "response", "parametersJsonSchema", "responseJsonSchema", "properties", "example", "labels"})
"""Names of fields whose keys are chosen by the client. These keys are not renamed."""
_LEVELS = frozenset({"minimal", "low", "medium", "high", "xhigh"})
_BUDGETS = ((1024, "low"), (8192, "medium"))
"""(Maximum thinking budget in tokens, effort). A larger budget means the effort `high`."""


def parse(
    body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], *, model: str, stream: bool
) -> CompletionRequest:
    """Parse a request. Raises BadRequest, with the name of the field, if the gateway cannot translate the request."""
    fields: dict[str, Any] = camel_case(chat_request.load_object(body))
    thinking = _config(fields).get("thinkingConfig") or {}
    try:
        chat = _chat(fields, model)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadRequest("The body has a value of the wrong type in contents, tools or generationConfig.") from error
    if stream:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    parsed = chat_request.parse(orjson.dumps(chat), request_id, controls, headers)
    if extras := _extras(fields):
        parsed.body = {**parsed.body, EXTRAS: extras}
    parsed.dialect = "gemini_generate"
    parsed.echoed = {SHOWS_THOUGHTS: thinking.get(SHOWS_THOUGHTS) is True, OWN: fields}
    return parsed


def _extras(fields: dict[str, Any]) -> dict[str, Any]:
    """The parts of the request that chat does not have, or has in a less exact form. `fields`: checked already."""
    config = {name: value for name, value in _config(fields).items() if name not in _CONFIG and value is not None}
    contents = fields["contents"] if type(fields["contents"]) is list else [fields["contents"]]
    parts = [
        (at, place, more)
        for at, content in enumerate(contents)
        for place, part in enumerate(content["parts"])
        if (more := {name: value for name, value in part.items() if name not in _OF_PARTS})
    ]
    found = {"generationConfig": config, _SAFETY: fields.get(_SAFETY), "toolConfig": fields.get("toolConfig")}
    return {name: value for name, value in {**found, "parts": parts}.items() if value}


def parse_counted(body: bytes, headers: Mapping[bytes, bytes], *, model: str) -> CompletionRequest:
    """Parse a `countTokens` request. Its body contains only the contents, or a whole generateContent request."""
    fields = camel_case(chat_request.load_object(body))
    whole = fields.get("generateContentRequest")
    return parse(body if whole is None else orjson.dumps(whole), "", Controls(), headers, model=model, stream=False)


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    config = fields.get("generationConfig") or {}
    if type(config) is not dict:
        raise BadRequest("generationConfig must be an object.", param="generationConfig")
    check(config, _WANTED)
    return config


def _chat(fields: dict[str, Any], model: str) -> dict[str, Any]:
    config = _config(fields)
    for name in _REFUSED:
        if fields.get(name):
            raise BadRequest(f"{name} is kept at Google, for one account: send the contents.", param=name)
    if unknown := next((name for name in fields if name not in _KNOWN and name != _SAFETY and fields[name]), None):
        raise BadRequest(f"{unknown} is not translated: leave it out.", param=unknown)
    for name in _REFUSED_CONFIG:
        if config.get(name):
            raise BadRequest(f"generationConfig.{name} is not translated: leave it out.", param=name)
    if [each for each in config.get("responseModalities") or () if str(each).upper() != "TEXT"]:
        raise BadRequest("generationConfig.responseModalities must be TEXT alone.", param="responseModalities")
    return {
        "model": model,
        "messages": messages(fields.get("contents"), fields.get("systemInstruction")),
        **{chats: config[name] for name, chats in _CONFIG.items() if config.get(name) is not None},
        **_tools(fields),
        **_form(config),
        **_effort(config.get("thinkingConfig") or {}),
    }


def camel_case(value: Any) -> Any:
    """`value` with all field names in camelCase, the documented form. Google's API also accepts `snake_case`, and
    Google's SDKs send both forms."""
    if type(value) is list:
        return [camel_case(each) for each in value]
    if type(value) is not dict:
        return value
    named = ((_SNAKE.sub(lambda found: found[1].upper(), name), inner) for name, inner in value.items())
    return {name: inner if name in _FREE else camel_case(inner) for name, inner in named}


def _tools(fields: dict[str, Any]) -> dict[str, Any]:
    functions: list[dict[str, Any]] = []
    for index, tool in enumerate(fields.get("tools") or ()):
        declared = tool.get("functionDeclarations") if type(tool) is dict else None
        if type(declared) is not list or not all(type(each) is dict for each in declared):
            raise BadRequest(
                f"tools[{index}] must have functionDeclarations: tools that Google runs have a price of their own, "
                "which the gateway does not book.",
                param="tools",
            )
        functions += [_function(each) for each in declared]
    if not functions:
        return {}
    holder = fields.get("toolConfig") or {}
    calling = holder.get("functionCallingConfig") if type(holder) is dict else None
    choice: Any = _MODES.get(str(calling.get("mode", "")).upper()) if type(calling) is dict else None
    allowed = calling.get("allowedFunctionNames") if type(calling) is dict else None
    if allowed and choice == "required":
        functions = [each for each in functions if each["function"]["name"] in allowed]
    return {"tools": functions, **({"tool_choice": choice} if choice else {})}


def _function(declared: dict[str, Any]) -> dict[str, Any]:
    function: dict[str, Any] = {"name": declared.get("name")}
    if declared.get("description"):
        function["description"] = declared["description"]
    if schema := declared.get("parametersJsonSchema") or json_schema(declared.get("parameters")):
        function["parameters"] = schema
    return {"type": "function", "function": function}


def _form(config: dict[str, Any]) -> dict[str, Any]:
    if config.get("responseMimeType") in (None, "text/plain"):
        return {}
    schema = config.get("responseJsonSchema") or json_schema(config.get("responseSchema"))
    if not schema:
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def json_schema(schema: Any) -> Any:
    """Convert a schema in Gemini's format to a JSON schema. In Gemini's format, types are in capitals, and numbers may
    be strings."""
    if type(schema) is list:
        return [json_schema(each) for each in schema]
    if type(schema) is not dict:
        return schema
    found: dict[str, Any] = {}
    nullable = bool(schema.get("nullable"))
    for name, value in schema.items():
        if name == "type" and type(value) is str:
            found[name] = [value.lower(), "null"] if nullable else value.lower()
        elif name == "enum" and type(value) is list and nullable:
            found[name] = [*value, None]
        elif name == "properties" and type(value) is dict:
            found[name] = {each: json_schema(inner) for each, inner in value.items()}
        elif name in ("items", "anyOf"):
            inner = json_schema(value)
            found[name] = [*inner, {"type": "null"}] if name == "anyOf" and nullable and "type" not in schema else inner
        elif name not in ("nullable", "propertyOrdering", "example"):
            number = name.startswith(("min", "max")) and type(value) is str and value.isdigit()
            found[name] = int(value) if number else value
    return found


def _effort(thinking: dict[str, Any]) -> dict[str, Any]:
    """The field `reasoning_effort` for a thinking level or a thinking budget. A budget of -1 sets no effort, so the
    model decides."""
    level = str(thinking.get("thinkingLevel") or "").lower()
    if level in _LEVELS:
        return {"reasoning_effort": level}
    budget = thinking.get("thinkingBudget")
    if type(budget) is not int or budget < 0:
        return {}
    return {"reasoning_effort": next((word for most, word in _BUDGETS if budget <= most), "high") if budget else "none"}
