"""Converts a chat request to a `generateContent` request.

Messages and tools are first converted to Anthropic's format, which has blocks for all of their parts. Sampling, schemas
and effort are read from the chat request itself.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects.openai_chat.message import signature_of
from gateway.dialects.translate.chat_to_messages import body as messages_body
from gateway.dialects.translate.chat_to_messages.content import Numbered, plain_id
from gateway.errors import BadRequest

Block = dict[str, Any]

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_OWN = frozenset({*_SAMPLING, "stop", "response_format", "reasoning_effort", "thinking", "output_config"})
"""Names of the fields that are read from the chat request, not from the conversion to Anthropic's format."""
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
"""Reasoning effort → thinking budget in tokens for Gemini 2.5. Google's OpenAI endpoint uses the same numbers."""
_LEVELS = {"none": "minimal", "minimal": "minimal", "low": "low", "medium": "medium"}
"""Reasoning effort → thinking level for Gemini 3 and later. Any other effort means the level `high`."""
LEVELLED = re.compile(r"gemini-(?:[3-9]|\d\d)")
UNSIGNED = "skip_thought_signature_validator"
"""Google's placeholder for the signature of a call, used if the signature is unknown. Needed when another model began
the conversation."""
_MODES = {"auto": "AUTO", "any": "ANY", "tool": "ANY", "none": "NONE"}
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})


def generate(body: dict[str, Any], messages: list[Numbered], model: str, limit: int | None) -> dict[str, Any]:
    """The Gemini request for the chat request `body`. Raises BadRequest with an unsupported field.

    `messages`: the messages of `body` to send. `limit`: maximum output tokens; None: the model's limit.
    """
    try:
        rest = {name: value for name, value in body.items() if name not in _OWN}
        as_messages = messages_body.translate(rest, messages, model, stream=False, limit=limit)
        return _generate(body, orjson.loads(orjson.dumps(as_messages)), messages, model, limit)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadRequest("messages: a part has a value of the wrong type for this model.", param="messages") from error


def _generate(
    body: dict[str, Any], message: dict[str, Any], messages: list[Numbered], model: str, limit: int | None
) -> dict[str, Any]:
    contents = _Contents(_signatures(messages), signs=bool(LEVELLED.search(model)))
    found: dict[str, Any] = {"contents": [contents.turn(turn, at) for at, turn in enumerate(message["messages"])]}
    if system := message.get("system"):
        texts = [system] if type(system) is str else [block["text"] for block in system]
        found["systemInstruction"] = {"parts": [{"text": text} for text in texts]}
    found |= _tools(message)
    if config := _config(body, model, limit):
        found["generationConfig"] = config
    return found


def _signatures(messages: list[Numbered]) -> dict[str, str]:
    """The signatures that Gemini sent with its calls, as far as the client has returned them: id of the call →
    signature."""
    found = {}
    for _, message in messages:
        for call in message.get("tool_calls") or ():
            if signature := signature_of(call):
                found[plain_id(call["id"])] = signature
    return found


class _Contents:
    """Converts turns to Gemini's contents, in order. A result must contain the name of the called function, which
    is known only from the call before it.
    """

    def __init__(self, signatures: Mapping[str, str], *, signs: bool) -> None:
        """`signatures`: id of a call → signature. `signs`: whether the model refuses calls without a signature."""
        self._signatures, self._signs = signatures, signs
        self._names: dict[str, str] = {}
        """Id of a call → name of the called function."""

    def turn(self, turn: dict[str, Any], index: int) -> Block:
        content = turn["content"]
        blocks = [{"type": "text", "text": content}] if type(content) is str else content
        role = "model" if turn["role"] == "assistant" else "user"
        shown = [block for block in blocks if block["type"] not in _THOUGHTS]  # thinking blocks are Anthropic's
        parts = [part for block in shown for part in self._parts(block, f"messages[{index}].content")]
        if self._signs and (first := next((part for part in parts if "functionCall" in part), None)):
            first.setdefault("thoughtSignature", UNSIGNED)
        return {"role": role, "parts": parts or [{"text": ""}]}

    def _parts(self, block: Block, where: str) -> list[Block]:
        match block["type"]:
            case "text":
                return [{"text": block["text"]}]
            case "image" | "document":
                return [_data(block["source"], where)]
            case "tool_use":
                self._names[block["id"]] = block["name"]
                part: Block = {"functionCall": {"name": block["name"], "args": block["input"]}}
                signature = self._signatures.get(block["id"])
                return [{**part, "thoughtSignature": signature} if signature else part]
            case "tool_result":
                return self._result(block, where)
        raise BadRequest(f"{where}: Gemini takes no {block['type']}.", param=where)

    def _result(self, block: Block, where: str) -> list[Block]:
        content: str | list[Block] = block.get("content") or ""
        blocks: list[Block] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "\n".join(each["text"] for each in blocks if each["type"] == "text")
        beside = [_data(each["source"], where) for each in blocks if each["type"] in ("image", "document")]
        response = {"error": text} if block.get("is_error") else _object(text)
        name = self._names.get(block["tool_use_id"], "unknown")
        return [{"functionResponse": {"name": name, "response": response}}, *beside]


def _object(text: str) -> dict[str, Any]:
    """The result of a call as an object, because Gemini requires an object. `text`: the result in the chat request."""
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError:
        read = None
    return read if type(read) is dict else {"result": text}


def _data(source: Block, where: str) -> Block:
    if source["type"] == "text":
        return {"inlineData": {"mimeType": "text/plain", "data": b64encode(source["data"].encode()).decode()}}
    if source["type"] != "base64":
        raise BadRequest(f"{where}: an image or a file for this model must be a data URL.", param=where)
    return {"inlineData": {"mimeType": source["media_type"], "data": source["data"]}}


def _tools(message: dict[str, Any]) -> dict[str, Any]:
    if not (offered := message.get("tools")):
        return {}
    choice = message.get("tool_choice") or {}
    calling: Block = {"mode": _MODES[choice.get("type", "auto")]}
    if choice.get("type") == "tool":
        calling["allowedFunctionNames"] = [choice["name"]]
    tools = [{"functionDeclarations": [_function(tool) for tool in offered]}]
    return {"tools": tools, "toolConfig": {"functionCallingConfig": calling}} if choice else {"tools": tools}


def _function(tool: Block) -> Block:
    if "input_schema" not in tool:
        raise BadRequest(f"tools: this model takes functions, not {tool.get('type')}.", param="tools")
    found = {"name": tool["name"], "parametersJsonSchema": tool["input_schema"]}
    return {**found, "description": tool["description"]} if tool.get("description") else found


def _config(body: dict[str, Any], model: str, limit: int | None) -> dict[str, Any]:
    found = {theirs: body[name] for name, theirs in _SAMPLING.items() if body.get(name) is not None}
    if stop := body.get("stop"):
        found["stopSequences"] = [stop] if type(stop) is str else stop
    if limit is not None:
        found["maxOutputTokens"] = limit
    return found | _form(body.get("response_format")) | _thinking(body.get("reasoning_effort"), model)


def _form(form: Any) -> dict[str, Any]:
    kind = form.get("type") if type(form) is dict else None
    if kind == "json_schema":
        schema = form["json_schema"].get("schema") if type(form.get("json_schema")) is dict else None
        if type(schema) is not dict:
            where = "response_format.json_schema.schema"
            raise BadRequest(f"{where} must be an object.", param=where)
        return {"responseMimeType": "application/json", "responseJsonSchema": schema}
    return {"responseMimeType": "application/json"} if kind == "json_object" else {}


def _thinking(effort: Any, model: str) -> dict[str, Any]:
    if effort is None:
        return {}
    if effort not in _BUDGETS:
        raise BadRequest(f"reasoning_effort must be one of {', '.join(_BUDGETS)}.", param="reasoning_effort")
    if LEVELLED.search(model):
        config: dict[str, Any] = {"thinkingLevel": _LEVELS.get(effort, "high")}
    else:
        config = {"thinkingBudget": _BUDGETS[effort]}
    return {"thinkingConfig": config if effort == "none" else {**config, "includeThoughts": True}}
