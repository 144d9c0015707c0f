"""Converts Anthropic's tools to OpenAI's tools. Shortens names that are too long for OpenAI."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from gateway.errors import BadRequest

LONGEST_NAME = 64
"""Maximum characters of a function's name at OpenAI. Anthropic accepts names of twice this length, and coding agents
use such names."""
_DIGEST = 8
_ELSEWHERE = ("mcp_servers", "container")
"""Names of fields that add further tools, which are not in the request itself."""
_REMOVABLE = ("web_search_", "web_fetch_")
"""Prefixes of the types of Anthropic's own tools. Tools of these types are removed if the request has other tools and
does not force a call. Any other tool of Anthropic's own is an error."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the tools to the fields `tools`, `tool_choice` and `parallel_tool_calls` of a chat request. Raises
    BadRequest for tools that only Anthropic can run.
    """
    for name in _ELSEWHERE:
        if body.get(name):
            raise BadRequest(f"{name} is known only to models of Anthropic's; leave it out.", param=name)
    value = body.get("tools") or ()
    free = (body.get("tool_choice") or {}).get("type", "auto") in ("auto", "none")
    removes = free and any(not _removable(tool) for tool in value)
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(value) if not (removes and _removable(tool))]
    if not tools:
        return {}
    converted: dict[str, Any] = {"tools": tools}
    if choice := body.get("tool_choice"):
        converted["tool_choice"] = _choice(choice)
        if choice.get("disable_parallel_tool_use") is True:
            converted["parallel_tool_calls"] = False
    return converted


def _removable(tool: Any) -> bool:
    return type(tool) is dict and str(tool.get("type")).startswith(_REMOVABLE)


def _tool(tool: Any, where: str) -> dict[str, Any]:
    if type(tool) is not dict:
        raise BadRequest(f"{where} must be an object.", param=where)
    if tool.get("type") not in (None, "custom"):
        raise BadRequest(
            f"{where} is {tool['type']!r}, a tool of Anthropic's own, which the model that serves this request does "
            "not have; leave it out, or ask for a model of Anthropic's.",
            param=where,
        )
    if type(tool.get("name")) is not str:
        raise BadRequest(f"{where}.name must be a string.", param=f"{where}.name")
    function: dict[str, Any] = {"name": short(tool["name"])}
    if tool.get("description"):
        function["description"] = tool["description"]
    function["parameters"] = tool.get("input_schema") or {"type": "object", "properties": {}}
    if tool.get("strict") is True:
        function["strict"] = True
    converted = {"type": "function", "function": function}
    return {**converted, "cache_control": tool["cache_control"]} if tool.get("cache_control") else converted


def _choice(choice: dict[str, Any]) -> Any:
    kind, name = choice.get("type"), choice.get("name")
    if kind == "tool" and type(name) is str:
        return {"type": "function", "function": {"name": short(name)}}
    if type(kind) is not str or kind not in _CHOICES:
        raise BadRequest("tool_choice.type must be auto, any, none, or tool with a name.", param="tool_choice")
    return _CHOICES[kind]


def short(name: str) -> str:
    """The `name`, at most `LONGEST_NAME` characters long. A shortened name ends in a hash."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - _DIGEST - 1]}_{sha256(name.encode()).hexdigest()[:_DIGEST]}"


def long_names(body: Mapping[str, Any]) -> dict[str, str]:
    """Shortened name → the client's name. Contains the tools whose names were shortened."""
    names = [tool["name"] for tool in body.get("tools") or ()]
    return {short(name): name for name in names if len(name) > LONGEST_NAME}
