"""An OpenAI chat request in the words of Anthropic's messages API."""

from __future__ import annotations

from typing import Any

from gateway.dialects.messages_content import Numbered, conversation, object_or_none
from gateway.errors import BadRequest

DEFAULT_MAX_TOKENS = 4096
"""Anthropic wants a number; this one every model accepts."""

_STRICTER_TEMPERATURE = 1.0
_TRANSLATED = frozenset(
    {
        *(
            "model",
            "messages",
            "stream",
            "stream_options",
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "stop",
        ),
        *("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "response_format"),
        *("stop", "reasoning_effort", "user", "safety_identifier", "n", "logprobs", "top_logprobs"),
    }
)
_WITHOUT_EQUIVALENT = frozenset(
    {
        *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "metadata", "store", "service_tier"),
        *("modalities", "audio", "prediction", "verbosity", "web_search_options"),
        *("prompt_cache_key", "prompt_cache_retention"),
    }
)
"""Hints that Anthropic's own OpenAI endpoint ignores too. Fields nobody has heard of are carried."""
_EFFORT = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def translate(
    body: dict[str, Any], messages: list[Numbered], model: str, *, stream: bool, max_tokens: int
) -> dict[str, Any]:
    """`messages`: those of `body` that are to be sent. Raises BadRequest naming what Anthropic cannot do."""
    _refuse_impossible(body)
    system, turns = conversation(messages)
    said: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": turns}
    if system:
        said["system"] = system
    if stream:
        said["stream"] = True
    if body.get("temperature") is not None:
        said["temperature"] = min(body["temperature"], _STRICTER_TEMPERATURE)
    if stop := _stop_sequences(body.get("stop")):
        said["stop_sequences"] = stop
    said |= _tools(body)
    if config := _output_config(body):
        said["output_config"] = config
    if user := body.get("safety_identifier") or body.get("user"):
        said["metadata"] = {"user_id": user}
    known = _TRANSLATED | _WITHOUT_EQUIVALENT
    return said | {name: value for name, value in body.items() if name not in known and value is not None}


def _refuse_impossible(body: dict[str, Any]) -> None:
    if (body.get("n") or 1) > 1:
        raise BadRequest("This model answers once per request: n must be 1.", param="n")
    if body.get("logprobs"):
        raise BadRequest("This model gives no log-probabilities: leave logprobs out.", param="logprobs")


def _stop_sequences(stop: Any) -> list[str]:
    if stop is None:
        return []
    sequences = [stop] if type(stop) is str else stop
    if type(sequences) is not list or not all(type(sequence) is str for sequence in sequences):
        raise BadRequest("stop must be a string or an array of strings.", param="stop")
    if not all(sequence.strip() for sequence in sequences):
        raise BadRequest("This model cannot stop at white space: stop needs a visible character.", param="stop")
    return sequences


def _tools(body: dict[str, Any]) -> dict[str, Any]:
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.get("tools") or ())]
    tools += [_function(tool, f"functions[{index}]") for index, tool in enumerate(body.get("functions") or ())]
    if not tools:
        return {}
    choice, allowed = _choice(body)
    if allowed is not None:
        tools = [tool for tool in tools if tool.get("name") in allowed]
    if body.get("parallel_tool_calls") is False and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return {"tools": tools, "tool_choice": choice} if choice else {"tools": tools}


def _tool(tool: Any, where: str) -> dict[str, Any]:
    if type(tool) is not dict:
        raise BadRequest(f"{where} must be an object.", param=where)
    if "function" not in tool and tool.get("type") not in (None, "function", "custom"):
        return tool  # One of Anthropic's own, such as web_search_20250305.
    named = _function(tool.get("function"), f"{where}.function")
    return {**named, "cache_control": tool["cache_control"]} if "cache_control" in tool else named


def _function(function: Any, where: str) -> dict[str, Any]:
    if type(function) is not dict or type(function.get("name")) is not str:
        raise BadRequest(f"{where} must be a function with a name; this model knows no other tools.", param=where)
    tool: dict[str, Any] = {
        "name": function["name"],
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }
    if function.get("description"):
        tool["description"] = function["description"]
    if function.get("strict"):
        tool["strict"] = True
    return tool


def _choice(body: dict[str, Any]) -> tuple[dict[str, Any] | None, set[str] | None]:
    """Anthropic's tool choice, and the only names allowed if the client gave such a list."""
    choice = body.get("tool_choice", body.get("function_call"))
    if choice is None:
        return None, None
    if type(choice) is str and choice in _CHOICES:
        return {"type": _CHOICES[choice]}, None
    if type(choice) is dict and choice.get("type") == "allowed_tools":
        return _allowed(choice.get("allowed_tools", choice))
    function = choice.get("function", choice) if type(choice) is dict else {}
    if type(function) is dict and type(function.get("name")) is str:
        return {"type": "tool", "name": function["name"]}, None
    raise BadRequest("tool_choice must be auto, required, none or a function.", param="tool_choice")


def _allowed(allowed: Any) -> tuple[dict[str, Any], set[str]]:
    tools = allowed.get("tools") if type(allowed) is dict else None
    if type(tools) is not list:
        raise BadRequest("tool_choice.allowed_tools.tools must be an array.", param="tool_choice")
    functions = [object_or_none(tool.get("function", tool)) for tool in tools if type(tool) is dict]
    names = {function["name"] for function in functions if function and type(function.get("name")) is str}
    return {"type": "any" if allowed.get("mode") == "required" else "auto"}, names


def _output_config(body: dict[str, Any]) -> dict[str, Any]:
    """`json_object` has no equivalent; its prompt must ask for JSON anyway."""
    config: dict[str, Any] = {}
    if effort := _EFFORT.get(body.get("reasoning_effort") or ""):
        config["effort"] = effort
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        schema = (object_or_none(form.get("json_schema")) or {}).get("schema")
        if type(schema) is not dict:
            where = "response_format.json_schema.schema"
            raise BadRequest(f"{where} must be an object.", param=where)
        config["format"] = {"type": "json_schema", "schema": schema}
    return config
