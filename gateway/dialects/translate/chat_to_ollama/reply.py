"""Converts Ollama's answers to OpenAI's: texts, calls, finish reasons, usage, errors."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from gateway.dialects.answers.upstream_error import UpstreamError, find_error
from gateway.dialects.answers.usage import openai_usage
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, ContextTooLong

Block = dict[str, Any]

_TOO_LONG = re.compile(r"exceeds the (?:available )?context (?:length|size)|prompt is too long", re.IGNORECASE)
"""Matches the errors of Ollama's runner and of llama.cpp's server for a prompt that does not fit the window."""


def usage(line: Block) -> Usage | None:
    """The usage in a line or a whole answer; None if it contains no counts."""
    if "prompt_eval_count" not in line and "eval_count" not in line:
        return None
    return openai_usage({"prompt_tokens": line.get("prompt_eval_count"), "completion_tokens": line.get("eval_count")})


def finish_of(line: Block, *, called: bool) -> str:
    """OpenAI's finish reason for a last line. `called`: whether the answer contains a call."""
    if line.get("done_reason") == "length":
        return "length"
    return "tool_calls" if called else "stop"


def error_of(parsed: Any) -> UpstreamError | None:
    """The error in a parsed line or body; None if there is none. The text of Ollama's error may itself be an error
    object, which llama.cpp's server has written."""
    error = find_error(parsed)
    if error is None:
        return None
    if error.message.startswith("{"):
        with suppress(orjson.JSONDecodeError):
            error = find_error(orjson.loads(error.message)) or error
    if _TOO_LONG.search(error.message):
        error = replace(error, code=ContextTooLong.code)
    return error


def logprobs(line: Block) -> Block | None:
    given = line.get("logprobs")
    return {"content": given, "refusal": None} if type(given) is list and given else None


class Calls:
    """Converts the calls of one answer to the format of chat. A call gets an id if the server sent none, or sent an id
    that the answer already has."""

    def __init__(self, name: str) -> None:
        """`name`: a text from which ids are made. It differs from request to request."""
        self._name = name
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def made(self, call: Block) -> Block:
        """The call in the format of chat. Raises LookupError, TypeError or AttributeError if `call` is not a
        call."""
        function, number = call["function"], len(self._ids)
        given = function.get("arguments")
        arguments = given if type(given) is str else orjson.dumps(given or {}).decode()
        call_id = call.get("id")
        if type(call_id) is not str or not call_id or call_id in self._ids:
            call_id = f"call_{self._name}{number}"
        self._ids.add(call_id)
        if type(function["name"]) is not str:
            raise TypeError("the name of a function must be a text")
        return {"id": call_id, "type": "function", "function": {"name": function["name"], "arguments": arguments}}

    def forced(self, function: str, arguments: str) -> Block:
        """The call of the function that the request forces. `arguments`: the text of the answer."""
        return self.made({"function": {"name": function, "arguments": arguments}})


def choice(reply: Block, name: str, forced: str) -> Block:
    """The chat choice for a whole answer. `name`: prefix for the ids of calls. `forced`: the function that the request
    forces; empty if it forces none. Raises BackendGarbage."""
    message = reply.get("message")
    if type(message) is not dict:
        raise BackendGarbage("The backend answered with JSON that is not an answer of Ollama.")
    calls, text, thought = Calls(name), message.get("content") or "", message.get("thinking")
    try:
        made = [calls.made(call) for call in message.get("tool_calls") or ()]
    except (LookupError, TypeError, AttributeError) as error:
        raise BackendGarbage("The backend answered with a call that is not one of Ollama's.") from error
    if type(text) is not str:
        raise BackendGarbage("The backend answered with a content that is not a text.")
    if forced and text and not made:
        made, text = [calls.forced(forced, text)], ""
    found: Block = {"role": "assistant", "content": text if text or not made else None}
    if type(thought) is str and thought:
        found["reasoning_content"] = thought
    if made:
        found["tool_calls"] = made
    finish = finish_of(reply, called=bool(made))
    return {"index": 0, "message": found, "logprobs": logprobs(reply), "finish_reason": finish}
