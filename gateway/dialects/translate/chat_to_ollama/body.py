"""Converts a chat request to a request for Ollama's `/api/chat`."""

from __future__ import annotations

from typing import Any

from gateway.dialects.translate.chat_to_messages.offer import offer
from gateway.dialects.translate.chat_to_ollama.messages import Block, Numbered, messages
from gateway.errors import BadRequest

_OPTIONS = (
    *("temperature", "top_p", "top_k", "min_p", "seed"),
    *("presence_penalty", "frequency_penalty", "repeat_penalty"),
)
"""Names of the fields of chat that are options of Ollama, with the same names."""
_EFFORTS = {"none": False, "minimal": "low", "low": "low", "medium": "medium"}
"""Reasoning effort → Ollama's `think`. Other known efforts mean `high`."""
_HIGH = ("high", "xhigh", "max")
REFUSES = {"truncate": False, "shift": False}
"""Ollama refuses a prompt that its window cannot hold, and ends an answer that fills the window. Without these fields,
Ollama would cut the prompt and not report the cut. Versions before 0.12.6 do not know the fields."""


def chat(body: dict[str, Any], kept: list[Numbered], model: str, *, stream: bool, limit: int | None) -> Block:
    """The request for Ollama, which may contain `orjson.Fragment`s. `body`: the chat request. Raises BadRequest
    with an unsupported field.

    `kept`: the messages of `body` to send. `limit`: maximum output tokens; None: the model's limit.
    """
    _refuse_impossible(body)
    try:
        found: Block = {"model": model, "messages": messages(kept), "stream": stream, **REFUSES}
        found["options"] = _options(body, limit)
        offered = offer(body, [])
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadRequest("messages: a part has a value of the wrong type for this model.", param="messages") from error
    tools = [_function(tool) for tool in offered.get("tools") or ()]
    if forced := forced_function(body):
        tool = next((each["function"] for each in tools if each["function"]["name"] == forced), None)
        if tool is None:
            raise BadRequest(f"tool_choice names {forced}, which is no function of tools.", param="tool_choice")
        found["messages"].insert(0, {"role": "system", "content": _instruction(tool)})
        found["format"] = tool["parameters"]
    elif tools and (offered.get("tool_choice") or {}).get("type") != "none":
        found["tools"] = tools
    return {**_beside(body), **found}


def forced_function(body: dict[str, Any]) -> str:
    """The name of the single function that the request forces the model to call; empty if there is none.

    Ollama cannot force a call. So the gateway asks for the arguments as a structured answer, and makes the call
    from this answer.
    """
    choice = body.get("tool_choice") if body.get("tool_choice") is not None else body.get("function_call")
    if type(choice) is dict:
        function = choice.get("function", choice)
        name = function.get("name") if type(function) is dict else None
        return name if type(name) is str else ""
    tools = body.get("tools")
    if choice != "required" or type(tools) is not list or len(tools) != 1 or body.get("functions"):
        return ""
    function = tools[0].get("function") if type(tools[0]) is dict else None
    name = function.get("name") if type(function) is dict else None
    return name if type(name) is str else ""


def _instruction(tool: Block) -> str:
    described = f" ({tool['description']})" if tool.get("description") else ""
    return f"Call the function {tool['name']}{described}: answer with its arguments as one JSON object."


def _refuse_impossible(body: dict[str, Any]) -> None:
    if (body.get("n") or 1) > 1:
        raise BadRequest("This model answers once per request: n must be 1.", param="n")
    if type(body.get("modalities")) is list and "audio" in body["modalities"]:
        raise BadRequest("This model does not speak: modalities must be text alone.", param="modalities")
    if body.get("moderation"):
        raise BadRequest("This model's server moderates nothing: leave moderation out.", param="moderation")


def _options(body: dict[str, Any], limit: int | None) -> Block:
    found = {name: body[name] for name in _OPTIONS if body.get(name) is not None}
    if stop := body.get("stop"):
        found["stop"] = [stop] if type(stop) is str else stop
    if limit is not None:
        found["num_predict"] = limit
    return found


def _function(tool: Block) -> Block:
    if "input_schema" not in tool:
        raise BadRequest(f"tools: this model takes functions, not {tool.get('type')}.", param="tools")
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"type": "function", "function": {"name": tool["name"], **described, "parameters": tool["input_schema"]}}


def _beside(body: dict[str, Any]) -> Block:
    """The fields of the request other than messages, options and tools."""
    found = _form(body.get("response_format")) | _think(body.get("reasoning_effort"))
    if body.get("logprobs"):
        found |= {name: body[name] for name in ("logprobs", "top_logprobs") if body.get(name) is not None}
    if type(keep := body.get("keep_alive")) in (str, int):
        found["keep_alive"] = keep
    return found


def _form(form: Any) -> Block:
    kind = form.get("type") if type(form) is dict else None
    if kind != "json_schema":
        return {"format": "json"} if kind == "json_object" else {}
    described = form.get("json_schema")
    schema = described.get("schema") if type(described) is dict else None
    if type(schema) is not dict:
        where = "response_format.json_schema.schema"
        raise BadRequest(f"{where} must be an object.", param=where)
    return {"format": schema}


def _think(effort: Any) -> Block:
    if effort is None:
        return {}
    if effort not in _EFFORTS and effort not in _HIGH:
        known = ", ".join((*_EFFORTS, *_HIGH))
        raise BadRequest(f"reasoning_effort must be one of {known}.", param="reasoning_effort")
    return {"think": _EFFORTS.get(effort, "high")}
