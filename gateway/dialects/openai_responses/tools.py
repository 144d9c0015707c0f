"""Translates tools, the tool choice and the text format from Responses to chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gateway.dialects.openai_responses.request import declarations
from gateway.dialects.translate.messages_to_chat.tools import short
from gateway.errors import BadRequest

_INPUT = "input"
"""Name of the single argument of a function that represents a custom tool."""
_CHOICES = frozenset({"auto", "none", "required"})
_REMOVABLE = ("web_search", "image_generation", "tool_search")
"""Prefixes of the types of hosted tools that coding agents add to every request. A tool of these types is removed if
the model may choose its tools, because the model can then answer without this tool. Any other hosted tool is an error.
"""


class Tool(NamedTuple):
    """A tool as the client declared it."""

    name: str
    namespace: str = ""
    custom: bool = False
    """Whether a call of this tool contains a text instead of JSON."""


def chat_name(name: str, namespace: Any) -> str:
    """The name of the function in chat. Chat has no namespaces, so the namespace becomes a prefix of the name."""
    return short(f"{namespace}__{name}" if type(namespace) is str and namespace else name)


def known_tools(body: Mapping[str, Any]) -> dict[str, Tool]:
    """Name in chat → tool. Contains the client's tools that have another name or another type in chat."""
    found: dict[str, Tool] = {}
    for tool, _, within in _each(body):
        name, custom = tool.get("name"), tool.get("type") == "custom"
        if type(name) is str and (custom or chat_name(name, within) != name):
            found[chat_name(name, within)] = Tool(name, within, custom)
    return found


def chat_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `tools`, `tool_choice` and `parallel_tool_calls` of a chat body.

    Raises BadRequest with the location of a value that chat cannot express.
    """
    choice, allowed = _choice(body.get("tool_choice"), body)
    tools = _tools(body, allowed, removes=choice != "required")
    fields: dict[str, Any] = {}
    if tools:
        fields["tools"] = tools
        if choice is not None:
            fields["tool_choice"] = choice
        if body.get("parallel_tool_calls") is not None:
            fields["parallel_tool_calls"] = body["parallel_tool_calls"]
    return fields


def _tools(body: Mapping[str, Any], allowed: frozenset[str] | None, *, removes: bool) -> list[dict[str, Any]]:
    """The tools in the format of chat. If a tool is declared several times, the last declaration is used.

    `allowed`: names of the tools to send; None: all. `removes`: whether to leave out tools that OpenAI runs and that
    the answer does not need.
    """
    value = list(_each(body))
    removes = removes and not all(_removable(tool) for tool, _, _ in value)
    found: dict[str, dict[str, Any]] = {}
    for tool, where, within in value:
        if (removes and _removable(tool)) or (allowed is not None and not {str(tool.get("name")), within} & allowed):
            continue
        translated = _tool(tool, where, within)
        found[translated["function"]["name"]] = translated
    return list(found.values())


def _removable(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("type")).startswith(_REMOVABLE)


def _each(body: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield (tool, its location in the request, its namespace or an empty string). Raises BadRequest for an invalid
    declaration."""
    for tool, where in declarations(body):
        if tool.get("type") != "namespace":
            yield tool, where, ""
            continue
        inner = tool.get("tools")
        if type(tool.get("name")) is not str or type(inner) is not list or not all(type(one) is dict for one in inner):
            raise BadRequest(f"{where} must have a name and an array of tools.", param=where)
        for number, one in enumerate(inner):
            yield one, f"{where}.tools[{number}]", tool["name"]


def _tool(tool: dict[str, Any], where: str, within: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise BadRequest(
            f"{where}.type {kind!r} is a tool that this model's provider does not have; "
            "it knows functions and custom tools.",
            param=f"{where}.type",
        )
    if type(tool.get("name")) is not str:
        raise BadRequest(f"{where}.name must be a string.", param=f"{where}.name")
    function = _custom(tool) if kind == "custom" else _function(tool)
    function["name"] = chat_name(function["name"], within)
    found = {"type": "function", "function": function}
    return {**found, "cache_control": tool["cache_control"]} if tool.get("cache_control") else found


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "description", "parameters", "strict")
    return {name: tool[name] for name in names if tool.get(name) is not None}


def _custom(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a custom tool to a function with a single string argument. A grammar is added to the description."""
    described = [tool["description"]] if type(tool.get("description")) is str else []
    form = tool.get("format")
    if type(form) is dict and form.get("type") == "grammar":
        described.append(f"The input must follow this {form.get('syntax')} grammar:\n{form.get('definition')}")
    function: dict[str, Any] = {"name": tool["name"]}
    if described:
        function["description"] = "\n\n".join(described)
    function["parameters"] = {
        "type": "object",
        "properties": {_INPUT: {"type": "string"}},
        "required": [_INPUT],
        "additionalProperties": False,
    }
    return function


def custom_arguments(text: str) -> dict[str, str]:
    """The arguments of the function that represents a custom tool. `text`: the input of the custom tool."""
    return {_INPUT: text}


def custom_input(arguments: Any, otherwise: str) -> str:
    """The input of a custom tool, read from the `arguments` that `custom_arguments` wrote. Returns `otherwise` if the
    arguments have another structure."""
    text = arguments.get(_INPUT) if type(arguments) is dict else None
    return text if type(text) is str else otherwise


def _choice(choice: Any, body: Mapping[str, Any]) -> tuple[Any, frozenset[str] | None]:
    """Return (tool choice in the format of chat, names of the allowed tools). The names are None if the client gave
    no list of them.
    """
    if choice is None or (type(choice) is str and choice in _CHOICES):
        return choice, None
    if type(choice) is dict and choice.get("type") in ("function", "custom") and type(choice.get("name")) is str:
        return {"type": "function", "function": {"name": _chosen(choice, body)}}, None
    if type(choice) is dict and choice.get("type") == "allowed_tools":
        return "required" if choice.get("mode") == "required" else "auto", _allowed(choice.get("tools"))
    raise BadRequest(
        "tool_choice must be auto, none, required, a function, a custom tool or allowed_tools for this model.",
        param="tool_choice",
    )


def _chosen(choice: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    """The name that the chosen tool has in chat. The client may omit the namespace if the name of the tool is
    unique."""
    name: str = choice["name"]
    if choice.get("namespace"):
        return chat_name(name, choice["namespace"])
    places = [within for tool, _, within in _each(body) if tool.get("name") == name]
    return chat_name(name, "" if "" in places or not places else places[0])


def _allowed(tools: Any) -> frozenset[str]:
    if type(tools) is not list or not all(type(tool) is dict and type(tool.get("name")) is str for tool in tools):
        raise BadRequest("tool_choice.tools must be an array of tools with a name.", param="tool_choice.tools")
    return frozenset(tool["name"] for tool in tools)


def chat_format(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `response_format` and `verbosity` for the field `text` of a Responses request. Raises BadRequest if
    the format is not supported."""
    text = body.get("text") or {}
    fields: dict[str, Any] = {}
    form = text.get("format") or {}
    kind = form.get("type", "text")
    if kind == "json_schema":
        names = ("name", "description", "schema", "strict")
        schema = {name: form[name] for name in names if form.get(name) is not None}
        if type(schema.get("schema")) is not dict:
            raise BadRequest("text.format.schema must be an object.", param="text.format.schema")
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind == "json_object":
        fields["response_format"] = {"type": "json_object"}
    elif kind != "text":
        raise BadRequest("text.format.type must be text, json_object or json_schema.", param="text.format.type")
    if text.get("verbosity") is not None:
        fields["verbosity"] = text["verbosity"]
    return fields
