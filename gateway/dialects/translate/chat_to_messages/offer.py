"""Converts OpenAI's tools and tool choice to Anthropic's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.dialects.translate.chat_to_messages.schema import enforceable
from gateway.errors import BadRequest

FORCED = ("any", "tool")
"""Types of Anthropic's tool choice that force the model to call a tool. The model must not think before a forced call.
"""

_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_PLACE = ("city", "country", "region", "timezone")

Tool = dict[str, Any]


def offer(body: dict[str, Any], turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields `tools` and `tool_choice`; empty without tools. Raises BadRequest with the location of an unsupported
    tool.

    Anthropic requires a declaration of every tool that the conversation calls. If a declaration is missing, one with
    only the name is added.
    """
    offered = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.get("tools") or ())]
    offered += [_function(tool, f"functions[{index}]") for index, tool in enumerate(body.get("functions") or ())]
    if type(search := body.get("web_search_options")) is dict:
        offered.append(_web_search(search))
    if not offered:
        called = [{"name": name, "input_schema": _schema(None)} for name in dict.fromkeys(_called(turns))]
        return {"tools": called, "tool_choice": {"type": "none"}} if called else {}
    choice, allowed = _choice(body)
    if allowed is not None:
        offered = [tool for tool in offered if tool.get("name") in allowed]
    if body.get("parallel_tool_calls") is False and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return {"tools": offered, "tool_choice": choice} if choice else {"tools": offered}


def _called(turns: list[dict[str, Any]]) -> Iterator[str]:
    for turn in turns:
        if turn["role"] == "assistant" and type(turn["content"]) is list:
            names = (block.get("name") for block in turn["content"] if block["type"] == "tool_use")
            yield from (name for name in names if type(name) is str)


def _tool(tool: Any, where: str) -> Tool:
    if type(tool) is not dict:
        raise BadRequest(f"{where} must be an object.", param=where)
    if "input_schema" in tool or ("function" not in tool and tool.get("type") not in (None, "function", "custom")):
        return tool  # the tool is in Anthropic's format, or is Anthropic's own, such as web_search_20250305
    if "custom" in tool or tool.get("type") == "custom":
        raise BadRequest(f"{where} is a custom tool; this model only takes functions.", param=where)
    named = _function(tool.get("function"), f"{where}.function")
    return {**named, "cache_control": tool["cache_control"]} if tool.get("cache_control") else named


def _function(function: Any, where: str) -> Tool:
    if type(function) is not dict or type(function.get("name")) is not str:
        raise BadRequest(f"{where} must be a function with a name; this model knows no other tools.", param=where)
    schema = _schema(function.get("parameters"))
    tool: Tool = {"name": function["name"], "input_schema": schema}
    if function.get("description"):
        tool["description"] = function["description"]
    if function.get("strict"):
        tool |= {"input_schema": enforceable(schema), "strict": True}
    if function.get("cache_control"):
        tool["cache_control"] = function["cache_control"]
    return tool


def _schema(parameters: Any) -> Any:
    """The schema of a tool. If the schema has no type at the top level, the type is added, because Anthropic requires
    it and OpenAI does not."""
    if not parameters:
        return {"type": "object", "properties": {}}
    if type(parameters) is dict and "type" not in parameters:
        return {"type": "object", **parameters}
    return parameters


def _web_search(options: dict[str, Any]) -> Tool:
    """Anthropic's web search tool, made from OpenAI's `options`. The option `search_context_size` has no equivalent and
    is dropped."""
    tool = {"type": "web_search_20250305", "name": "web_search"}
    location = options.get("user_location")
    place = location.get("approximate") if type(location) is dict else None
    if type(place) is not dict:
        return tool
    known = {name: place[name] for name in _PLACE if place.get(name)}
    return {**tool, "user_location": {"type": "approximate", **known}}


def _choice(body: dict[str, Any]) -> tuple[dict[str, Any] | None, set[str] | None]:
    """Anthropic's tool choice, and the names of the allowed tools. The names are None if the client gave no list of
    allowed tools."""
    choice = body.get("tool_choice")
    field = "function_call" if choice is None else "tool_choice"
    choice = body.get("function_call") if choice is None else choice
    if choice is None:
        return None, None
    if type(choice) is str and choice in _CHOICES:
        return {"type": _CHOICES[choice]}, None
    if type(choice) is dict and choice.get("type") == "allowed_tools":
        return _allowed(choice.get("allowed_tools", choice))
    function = choice.get("function", choice) if type(choice) is dict else {}
    if type(function) is dict and type(function.get("name")) is str:
        return {"type": "tool", "name": function["name"]}, None
    raise BadRequest(f"{field} must be auto, required, none or a function.", param=field)


def _allowed(allowed: Any) -> tuple[dict[str, Any], set[str]]:
    chosen = allowed.get("tools") if type(allowed) is dict else None
    if type(chosen) is not list:
        raise BadRequest("tool_choice.allowed_tools.tools must be an array.", param="tool_choice")
    functions = [tool.get("function", tool) for tool in chosen if type(tool) is dict]
    names = {each["name"] for each in functions if type(each) is dict and type(each.get("name")) is str}
    return {"type": "any" if allowed.get("mode") == "required" else "auto"}, names
