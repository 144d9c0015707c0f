"""Tools, their choice and the form of the answer: from the words of Responses to those of chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gateway.errors import BadRequest

_INPUT = "input"
"""The one argument of a function that stands for a custom tool."""
_CHOICES = frozenset({"auto", "none", "required"})
_SPARED = ("web_search", "image_generation")
"""How the hosted tools' types begin that coding agents offer in every request beside their own: left out there, as a
model that is free to choose may do without them. Any other would be missed in the answer."""


class Tool(NamedTuple):
    """A tool as the client knows it."""

    name: str
    namespace: str = ""
    custom: bool = False
    """Its calls take text instead of JSON."""


def chat_name(name: str, namespace: Any) -> str:
    """Chat has no namespaces, so a function's name says where it belongs."""
    return f"{namespace}__{name}" if type(namespace) is str and namespace else name


def known_tools(body: Mapping[str, Any]) -> dict[str, Tool]:
    """The client's tools that have another name or nature in chat, by their name there."""
    found: dict[str, Tool] = {}
    for tool in body.get("tools") or ():
        within = tool.get("name") if tool.get("type") == "namespace" else ""
        for one in tool.get("tools") or () if within else (tool,):
            if type(one) is dict and type(one.get("name")) is str and (within or one.get("type") == "custom"):
                found[chat_name(one["name"], within)] = Tool(one["name"], within, one.get("type") == "custom")
    return found


def chat_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """`tools`, `tool_choice`, `parallel_tool_calls` of a chat body.

    Raises BadRequest naming what chat has no word for.
    """
    choice, allowed = _choice(body.get("tool_choice"))
    tools: list[dict[str, Any]] = []
    given = body.get("tools") or []
    spares = choice in (None, "auto", "none") and any(not _spared(tool) for tool in given)
    for tool, where, within in _each(given):
        if spares and _spared(tool):
            continue
        translated = _tool(tool, where, within)
        if allowed is None or not allowed.isdisjoint((tool["name"], within)):
            tools.append(translated)
    said: dict[str, Any] = {}
    if tools:
        said["tools"] = tools
        if choice is not None:
            said["tool_choice"] = choice
        if body.get("parallel_tool_calls") is not None:
            said["parallel_tool_calls"] = body["parallel_tool_calls"]
    return said


def _spared(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("type")).startswith(_SPARED)


def _each(tools: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Every single tool, its place in the request, and its namespace if it has one."""
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
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
    """A function of one string: models of other vendors call nothing else. A grammar is said in its description."""
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
    """What a custom tool was called with, as the arguments of the function that stands for it."""
    return {_INPUT: text}


def custom_input(arguments: Any, otherwise: str) -> str:
    """The way back; arguments of another shape are given as they were written."""
    text = arguments.get(_INPUT) if type(arguments) is dict else None
    return text if type(text) is str else otherwise


def _choice(choice: Any) -> tuple[Any, frozenset[str] | None]:
    """Chat's tool choice, and the only names that may be called where the client gave a list.

    Of a list the others are not sent: that says the same to every backend, and few know of such lists.
    """
    if choice is None or (type(choice) is str and choice in _CHOICES):
        return choice, None
    if type(choice) is dict and choice.get("type") in ("function", "custom") and type(choice.get("name")) is str:
        return {"type": "function", "function": {"name": choice["name"]}}, None
    if type(choice) is dict and choice.get("type") == "allowed_tools":
        return "required" if choice.get("mode") == "required" else "auto", _allowed(choice.get("tools"))
    raise BadRequest(
        "tool_choice must be auto, none, required, a function, a custom tool or allowed_tools for this model.",
        param="tool_choice",
    )


def _allowed(tools: Any) -> frozenset[str]:
    if type(tools) is not list or not all(type(tool) is dict and type(tool.get("name")) is str for tool in tools):
        raise BadRequest("tool_choice.tools must be an array of tools with a name.", param="tool_choice.tools")
    return frozenset(tool["name"] for tool in tools)


def chat_format(body: Mapping[str, Any]) -> dict[str, Any]:
    """`response_format` and `verbosity` out of `text`. Raises BadRequest."""
    text = body.get("text") or {}
    said: dict[str, Any] = {}
    form = text.get("format") or {}
    kind = form.get("type", "text")
    if kind == "json_schema":
        names = ("name", "description", "schema", "strict")
        schema = {name: form[name] for name in names if form.get(name) is not None}
        if type(schema.get("schema")) is not dict:
            raise BadRequest("text.format.schema must be an object.", param="text.format.schema")
        said["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind == "json_object":
        said["response_format"] = {"type": "json_object"}
    elif kind != "text":
        raise BadRequest("text.format.type must be text, json_object or json_schema.", param="text.format.type")
    if text.get("verbosity") is not None:
        said["verbosity"] = text["verbosity"]
    return said
