"""Translates tools, tool choice and text format from Responses to chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gateway.dialects.openai_responses.request import declarations
from gateway.dialects.translate.messages_to_chat.tools import short
from gateway.errors import BadRequest

_INPUT = "input"
"""The one argument of a function that stands for a custom tool."""
_CHOICES = frozenset({"auto", "none", "required"})
_SPARED = ("web_search", "image_generation", "tool_search")
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
    return short(f"{namespace}__{name}" if type(namespace) is str and namespace else name)


def known_tools(body: Mapping[str, Any]) -> dict[str, Tool]:
    """The client's tools that have another name or nature in chat, by their name there."""
    found: dict[str, Tool] = {}
    for tool, _, within in _each(body):
        name, custom = tool.get("name"), tool.get("type") == "custom"
        if type(name) is str and (custom or chat_name(name, within) != name):
            found[chat_name(name, within)] = Tool(name, within, custom)
    return found


def chat_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """`tools`, `tool_choice`, `parallel_tool_calls` of a chat body.

    Raises BadRequest naming what chat has no word for.
    """
    choice, allowed = _choice(body.get("tool_choice"), body)
    tools = _tools(body, allowed, spares=choice != "required")
    said: dict[str, Any] = {}
    if tools:
        said["tools"] = tools
        if choice is not None:
            said["tool_choice"] = choice
        if body.get("parallel_tool_calls") is not None:
            said["parallel_tool_calls"] = body["parallel_tool_calls"]
    return said


def _tools(body: Mapping[str, Any], allowed: frozenset[str] | None, *, spares: bool) -> list[dict[str, Any]]:
    """A tool that is offered twice is as it was offered last."""
    given = list(_each(body))
    spares = spares and not all(_spared(tool) for tool, _, _ in given)
    found: dict[str, dict[str, Any]] = {}
    for tool, where, within in given:
        if (spares and _spared(tool)) or (allowed is not None and not {str(tool.get("name")), within} & allowed):
            continue
        translated = _tool(tool, where, within)
        found[translated["function"]["name"]] = translated
    return list(found.values())


def _spared(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("type")).startswith(_SPARED)


def _each(body: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Every single tool, its place in the request, and its namespace if it has one. Raises BadRequest."""
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


def _choice(choice: Any, body: Mapping[str, Any]) -> tuple[Any, frozenset[str] | None]:
    """Chat's tool choice, and the only names that may be called where the client gave a list.

    Of a list the others are not sent: that says the same to every backend, and few know of such lists.
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
    """The chosen tool's name in chat. A namespace need not be said where no other tool is called so."""
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
