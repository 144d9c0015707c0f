"""Converts a chat request to a Responses request."""

from __future__ import annotations

from typing import Any

from gateway.dialects.translate.chat_to_responses.items import Item, Numbered, items
from gateway.errors import BadRequest

LOGPROBS = "message.output_text.logprobs"

_TRANSLATED = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "store"),
        *("tools", "tool_choice", "functions", "function_call", "response_format", "verbosity"),
        *("reasoning_effort", "reasoning", "logprobs", "web_search_options"),
    }
)
_WITHOUT_EQUIVALENT = frozenset(
    {
        *("n", "stop", "frequency_penalty", "presence_penalty", "logit_bias", "seed", "prediction"),
        *("modalities", "audio"),
    }
)
"""Names of fields without an equivalent. A field that would change the answer is rejected. `seed` and `prediction` are
dropped. Unknown fields are sent to the backend."""
_KEPT_THERE = ("previous_response_id", "conversation", "prompt", "background")
"""Fields of Responses that refer to data in the gateway's account at the provider. All teams share this account."""


def translate(
    body: dict[str, Any], messages: list[Numbered], model: str, *, stream: bool, max_tokens: int | None
) -> dict[str, Any]:
    """Convert a chat body to a Responses request. `messages`: the messages of `body` that are sent. `max_tokens`: the
    output limit; None: no limit is sent. Raises BadRequest with the name of an unsupported field."""
    _refuse_impossible(body)
    # The backend stores nothing: the client sends the whole conversation each time.
    translated: dict[str, Any] = {"model": model, "input": items(messages), "store": False}
    if stream:
        translated["stream"] = True
        if (noise := (body.get("stream_options") or {}).get("include_obfuscation")) is not None:
            translated["stream_options"] = {"include_obfuscation": noise}
    if max_tokens is not None:
        translated["max_output_tokens"] = max_tokens
    translated |= _tools(body)
    if text := _text(body):
        translated["text"] = text
    if reasoning := _reasoning(body):
        translated["reasoning"] = reasoning
    known = _TRANSLATED | _WITHOUT_EQUIVALENT
    carried = {name: value for name, value in body.items() if name not in known and value is not None}
    if body.get("logprobs"):
        include = carried.get("include")
        carried["include"] = [*(include if type(include) is list else ()), LOGPROBS]
    return carried | translated


def _refuse_impossible(body: dict[str, Any]) -> None:
    if (body.get("n") or 1) > 1:
        raise BadRequest("This model answers once per request: n must be 1.", param="n")
    for name in _KEPT_THERE:
        if body.get(name):
            raise BadRequest(f"{name} is no field of chat completions: send the whole conversation.", param=name)
    for name in ("stop", "logit_bias", "frequency_penalty", "presence_penalty"):
        if body.get(name):
            raise BadRequest(f"This model does not know {name}: leave it out.", param=name)
    modalities = body.get("modalities")
    if type(modalities) is list and "audio" in modalities:
        raise BadRequest("This model does not speak: modalities must be ['text'].", param="modalities")


def _reasoning(body: dict[str, Any]) -> Item:
    """The field `reasoning`. If the client sent this field, the client's value is combined with `reasoning_effort`."""
    reasoning = body.get("reasoning") or {}
    if type(reasoning) is not dict:
        raise BadRequest("reasoning must be an object.", param="reasoning")
    return {**reasoning, "effort": body["reasoning_effort"]} if body.get("reasoning_effort") else reasoning


def _tools(body: dict[str, Any]) -> dict[str, Any]:
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.get("tools") or ())]
    tools += [_function(tool, f"functions[{index}]") for index, tool in enumerate(body.get("functions") or ())]
    if (search := body.get("web_search_options")) is not None:
        tools.append(_web_search(search))
    if not tools:
        return {}
    choice = body.get("tool_choice", body.get("function_call"))
    return {"tools": tools} if choice is None else {"tools": tools, "tool_choice": _choice(choice)}


def _tool(tool: Any, where: str) -> Item:
    if type(tool) is not dict:
        raise BadRequest(f"{where} must be an object.", param=where)
    if type(tool.get("custom")) is dict:
        return _custom(tool["custom"], f"{where}.custom")
    if "function" not in tool and tool.get("type") not in (None, "function", "custom"):
        return tool  # the tool is in the format of Responses, such as web_search
    return _function(tool.get("function"), f"{where}.function")


def _function(function: Any, where: str) -> Item:
    """A function tool. `strict` is always set, because its default value is false in chat and true in Responses."""
    if type(function) is not dict or type(function.get("name")) is not str:
        raise BadRequest(f"{where} must be a function with a name.", param=where)
    tool: Item = {
        "type": "function",
        "name": function["name"],
        "parameters": function.get("parameters") or {"type": "object", "properties": {}},
        "strict": bool(function.get("strict")),
    }
    return {**tool, "description": function["description"]} if function.get("description") else tool


def _custom(custom: Item, where: str) -> Item:
    if type(custom.get("name")) is not str:
        raise BadRequest(f"{where} must have a name.", param=where)
    tool: Item = {"type": "custom", "name": custom["name"]}
    if custom.get("description"):
        tool["description"] = custom["description"]
    if type(form := custom.get("format")) is dict:
        grammar = form.get("grammar")
        tool["format"] = {"type": "grammar", **grammar} if type(grammar) is dict else form
    return tool


def _web_search(options: Any) -> Item:
    if type(options) is not dict:
        raise BadRequest("web_search_options must be an object.", param="web_search_options")
    tool: Item = {"type": "web_search"}
    if options.get("search_context_size"):
        tool["search_context_size"] = options["search_context_size"]
    place = options.get("user_location")
    if type(place) is dict:
        tool["user_location"] = {"type": "approximate", **(place.get("approximate") or {})}
    return tool


def _choice(choice: Any) -> Any:
    if choice in ("auto", "required", "none"):
        return choice
    if type(choice) is dict and choice.get("type") == "allowed_tools":
        return _allowed(choice.get("allowed_tools", choice))
    named = _named(choice)
    if named is None:
        raise BadRequest("tool_choice must be auto, required, none or a tool.", param="tool_choice")
    return named


def _named(tool: Any) -> Item | None:
    """A tool choice that names a tool. A choice in the format of Responses stays unchanged. None if the choice is
    invalid."""
    if type(tool) is not dict:
        return None
    kind = tool.get("type", "function")
    if kind not in ("function", "custom"):
        return tool
    inner = tool.get(kind, tool)
    name = inner.get("name") if type(inner) is dict else None
    return {"type": kind, "name": name} if type(name) is str else None


def _allowed(allowed: Any) -> Item:
    tools = allowed.get("tools") if type(allowed) is dict else None
    named = [_named(tool) for tool in tools] if type(tools) is list else [None]
    if None in named:
        raise BadRequest("tool_choice.allowed_tools.tools must be an array of tools.", param="tool_choice")
    return {"type": "allowed_tools", "mode": allowed.get("mode") or "auto", "tools": named}


def _text(body: dict[str, Any]) -> Item:
    text: Item = {}
    if body.get("verbosity"):
        text["verbosity"] = body["verbosity"]
    form = body.get("response_format")
    if form is None:
        return text
    schema = form.get("json_schema")
    if form.get("type") != "json_schema":
        return {"format": form, **text}
    if type(schema) is not dict or type(schema.get("schema")) is not dict:
        where = "response_format.json_schema.schema"
        raise BadRequest(f"{where} must be an object.", param=where)
    return {"format": {"name": "answer", **schema, "type": "json_schema"}, **text}
