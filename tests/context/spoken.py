"""The conversation of a `Talk`, which is in Anthropic's dialect, in the dialects of other clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from gateway.dialects.openai_responses.thinking import pack
from gateway.domain.request import DialectName

Message = dict[str, Any]
SCHEMA: Message = {"type": "object", "properties": {"gli": {"type": "string"}}}
PICTURE = "[a picture]"


def blocks(message: Message) -> list[Message]:
    """The blocks of a message; a plain text is a block too."""
    content = message["content"]
    return [{"type": "text", "text": content}] if type(content) is str else content


def of(message: Message, kind: str) -> list[Message]:
    return [block for block in blocks(message) if block["type"] == kind]


def said(message: Message) -> str:
    return "\n".join(block["text"] for block in of(message, "text"))


def _output(result: Message) -> str:
    return result["content"] if type(result["content"]) is str else PICTURE


def _thought(message: Message) -> str:
    """The text of the model; other dialects have no message that only thinks."""
    return said(message) or ("" if of(message, "tool_use") else "Hm.")


def tool_of(dialect: DialectName, name: str, description: str) -> Message:
    """The definition of a tool."""
    described = {"name": name, "description": description}
    match dialect:
        case "anthropic_messages":
            return {**described, "input_schema": SCHEMA}
        case "openai_responses":
            return {"type": "function", **described, "parameters": SCHEMA}
        case "gemini_generate":
            return {**described, "parameters": SCHEMA}
        case "bedrock_converse":
            return {"toolSpec": {**described, "inputSchema": {"json": SCHEMA}}}
    return {"type": "function", "function": {**described, "parameters": SCHEMA}}


def _tools(dialect: DialectName, tools: Mapping[str, str]) -> Message:
    found = [tool_of(dialect, name, description) for name, description in tools.items()]
    match dialect:
        case "gemini_generate":
            return {"tools": [{"functionDeclarations": found}]}
        case "bedrock_converse":
            return {"toolConfig": {"tools": found}}
    return {"tools": found}


def _messages(messages: list[Message], system: str) -> Message:
    return {"max_tokens": 2000, "messages": messages, **({"system": system} if system else {})}


def _chat(messages: list[Message], system: str) -> Message:
    found: list[Message] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        if message["role"] == "assistant":
            answer: Message = {"role": "assistant", "content": _thought(message) or None}
            if calls := of(message, "tool_use"):
                answer["tool_calls"] = [
                    {
                        "id": call["id"],
                        "type": "function",
                        "function": {"name": call["name"], "arguments": orjson.dumps(call["input"]).decode()},
                    }
                    for call in calls
                ]
            if thinking := of(message, "thinking"):
                answer["thinking_blocks"] = thinking
            found.append(answer)
            continue
        found += [
            {"role": "tool", "tool_call_id": result["tool_use_id"], "content": _output(result)}
            for result in of(message, "tool_result")
        ]
        if text := said(message):
            found.append({"role": "user", "content": text})
    return {"messages": found}


def _responses(messages: list[Message], system: str) -> Message:
    items: list[Message] = []
    for message in messages:
        for result in of(message, "tool_result"):
            output = {"call_id": result["tool_use_id"], "output": _output(result)}
            items.append({"type": "function_call_output", **output})
        if thinking := of(message, "thinking"):
            items.append({"type": "reasoning", "summary": [], "encrypted_content": pack(thinking)})
        text = _thought(message) if message["role"] == "assistant" else said(message)
        if text:
            items.append({"role": message["role"], "content": text})
        for call in of(message, "tool_use"):
            called = {"call_id": call["id"], "name": call["name"], "arguments": orjson.dumps(call["input"]).decode()}
            items.append({"type": "function_call", **called})
    return {"input": items, **({"instructions": system} if system else {})}


def _gemini(messages: list[Message], system: str) -> Message:
    contents = []
    names: dict[str, str] = {}
    for message in messages:
        parts: list[Message] = []
        for result in of(message, "tool_result"):
            response = {"name": names[result["tool_use_id"]], "response": {"result": _output(result)}}
            parts.append({"functionResponse": response})
        text = _thought(message) if message["role"] == "assistant" else said(message)
        if text:
            parts.append({"text": text})
        for call in of(message, "tool_use"):
            names[call["id"]] = call["name"]
            parts.append({"functionCall": {"name": call["name"], "args": call["input"]}})
        contents.append({"role": "model" if message["role"] == "assistant" else "user", "parts": parts})
    return {"contents": contents, **({"systemInstruction": {"parts": [{"text": system}]}} if system else {})}


def _bedrock(messages: list[Message], system: str) -> Message:
    found = []
    for message in messages:
        content: list[Message] = []
        for result in of(message, "tool_result"):
            output = {"toolUseId": result["tool_use_id"], "content": [{"text": _output(result)}]}
            content.append({"toolResult": output})
        text = _thought(message) if message["role"] == "assistant" else said(message)
        if text:
            content.append({"text": text})
        content += [
            {"toolUse": {"toolUseId": call["id"], "name": call["name"], "input": call["input"]}}
            for call in of(message, "tool_use")
        ]
        found.append({"role": message["role"], "content": content})
    return {"messages": found, **({"system": [{"text": system}]} if system else {})}


def _ollama(messages: list[Message], system: str) -> Message:
    found: list[Message] = []
    for message in _chat(messages, system)["messages"]:
        message = {name: value for name, value in message.items() if name in ("role", "content", "tool_calls")}
        message["content"] = message["content"] or ""
        if calls := message.get("tool_calls"):
            functions = [call["function"] for call in calls]
            message["tool_calls"] = [
                {"function": {**each, "arguments": orjson.loads(each["arguments"])}} for each in functions
            ]
        found.append(message)
    return {"messages": found, "stream": False}


_WRITERS: Mapping[DialectName, Callable[[list[Message], str], Message]] = {
    "anthropic_messages": _messages,
    "openai_chat": _chat,
    "openai_responses": _responses,
    "gemini_generate": _gemini,
    "bedrock_converse": _bedrock,
    "ollama_chat": _ollama,
}


def spoken(dialect: DialectName, messages: list[Message], system: str, tools: Mapping[str, str]) -> Message:
    """The body of a request, without its model. `tools`: name → description."""
    return {**_WRITERS[dialect](messages, system), **(_tools(dialect, tools) if tools else {})}
