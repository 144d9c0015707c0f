"""Reads the tool definitions of a request, and writes a request without some of them.

Only definitions of functions that the client runs can be left out. Tools of the provider (web search, computer use,
MCP servers) are not functions, so they always stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from gateway.context.estimate import estimate
from gateway.dialects import json_splice
from gateway.dialects.gemini_generate.request import OWN
from gateway.domain.request import CompletionRequest

DIALECTS = frozenset({"openai_chat", "openai_responses", "anthropic_messages", "gemini_generate"})
_MARK = "cache_control"
_LAZY = (b'"defer_loading"', b'"tool_reference"')
"""Names of fields and blocks with which a client loads definitions only when they are needed. The provider refuses a
reference to a missing tool, and little can be saved in these requests."""
_MOST_DESCRIBED = 1024
"""Maximum characters of a function's description that OpenAI accepts for some models."""
_FREE_CHOICES = (None, "auto", "none")
_NAMED_CHOICES = ("tool", "function", "allowed_tools")
_NOTE = (
    "Note by the gateway: {names} can also be used, but this session has not used them, so their definitions are left "
    "out here. To use one of them, call it by its name, or write its name in your answer: then the definitions are "
    "sent again."
)


def tools_of(request: CompletionRequest) -> dict[str, int]:
    """Name → estimated tokens of each definition that may be left out. Empty if the request has none."""
    tools = request.body.get("tools")
    if request.dialect not in DIALECTS or type(tools) is not list or any(name in request.raw for name in _LAZY):
        return {}
    found = ((_function(request, tool), tool) for tool in tools)
    return {function["name"]: estimate(orjson.dumps(tool).decode()) for function, tool in found if function}


def _function(request: CompletionRequest, tool: Any) -> Mapping[str, Any] | None:
    """The part of a definition with name and description. None if the provider runs the tool."""
    if type(tool) is not dict:
        return None
    if request.dialect == "anthropic_messages":
        found = tool if tool.get("type") in (None, "custom") else None
    elif tool.get("type") != "function":
        found = None
    else:
        found = tool if request.dialect == "openai_responses" else tool.get("function")
    return found if type(found) is dict and type(found.get("name")) is str and found["name"] else None


def requires(request: CompletionRequest, names: Collection[str]) -> bool:
    """Whether `tool_choice` could make the model call one of the tools `names`."""
    choice = request.body.get("tool_choice")
    kind = choice.get("type") if type(choice) is dict else choice
    chosen = list(_strings(choice)) if type(choice) is dict else []
    if request.dialect == "gemini_generate":
        chosen += _strings(request.echoed[OWN].get("toolConfig"))
    if kind not in _FREE_CHOICES and kind not in _NAMED_CHOICES:
        return True
    return not set(chosen).isdisjoint(names)


def has_room(request: CompletionRequest, names: Collection[str]) -> bool:
    """Whether a provider with a limit for descriptions accepts the note about `names`."""
    return _room([_function(request, tool) for tool in request.body["tools"]], names, _note(names)) is not None


def _note(names: Collection[str]) -> str:
    return _NOTE.format(names=", ".join(names))


def _room(functions: Sequence[Mapping[str, Any] | None], names: Collection[str], note: str) -> int | None:
    """Index of the last function that stays in the request and has room for `note` in its description; None if there is
    none.

    If the client has sent a description longer than `_MOST_DESCRIBED`, its provider has no limit for descriptions. Then
    every function has room.
    """
    sizes = {at: len(str(each.get("description") or "")) for at, each in enumerate(functions) if each}
    limited = max(sizes.values()) <= _MOST_DESCRIBED
    stays = [at for at in sizes if (functions[at] or {})["name"] not in names]
    fits = (at for at in reversed(stays) if not limited or sizes[at] + 2 + len(note) <= _MOST_DESCRIBED)
    return next(fits, None)


def _strings(value: Any) -> Iterable[str]:
    if type(value) is str:
        yield value
    elif type(value) is dict or type(value) is list:
        for each in value.values() if type(value) is dict else value:
            yield from _strings(each)


def without(request: CompletionRequest, names: Collection[str]) -> CompletionRequest:
    """The request without the definitions of the tools `names`. At least one function must stay; its description
    lists the names.
    """
    note = _note(names)
    tools = _less([(tool, _function(request, tool)) for tool in request.body["tools"]], names, note)
    raw = json_splice.splice(request.raw, request.body, {"tools": orjson.dumps(tools)})
    echoed = request.echoed
    if request.dialect == "gemini_generate":
        echoed = {**echoed, OWN: {**echoed[OWN], "tools": _less_own(echoed[OWN]["tools"], names, note)}}
    left = sum(size for name, size in tools_of(request).items() if name in names) - estimate(note)
    known = request.estimated_tokens
    return replace(
        request,
        raw=raw,
        body={**request.body, "tools": tools},
        echoed=echoed,
        estimated_tokens=None if known is None else max(1, known - left),
        scan=None,
        continued=None,
        notes=None,
        as_chat=None,
    )


def _less(tools: list[tuple[Any, Mapping[str, Any] | None]], names: Collection[str], note: str) -> list[Any]:
    """The definitions without `names`, with the note. `tools`: (definition, the part of it with name and
    description).

    A cache mark on a definition that is left out moves to the definition before it.
    """
    noted = _room([function for _, function in tools], names, note)
    if noted is None:
        noted = max(place for place, (_, function) in enumerate(tools) if function and function["name"] not in names)
    kept: list[Any] = []
    for place, (tool, function) in enumerate(tools):
        if function and function["name"] in names:
            if kept and type(tool.get(_MARK)) is dict and type(kept[-1]) is dict:
                kept[-1] = {_MARK: tool[_MARK], **kept[-1]}
        elif place == noted and function:
            kept.append(_noted(tool, function, note))
        else:
            kept.append(tool)
    return kept


def _noted(tool: dict[str, Any], function: Mapping[str, Any], note: str) -> dict[str, Any]:
    described = {**function, "description": f"{function.get('description') or ''}\n\n{note}".lstrip()}
    return described if function is tool else {**tool, "function": described}


def _less_own(tools: list[Any], names: Collection[str], note: str) -> list[Any]:
    """The definitions without `names`, with the note, for tools in the form that Gemini's clients send."""
    pairs = [(each, each) for tool in tools for each in tool["functionDeclarations"]]
    return [{"functionDeclarations": _less(pairs, names, note)}]
