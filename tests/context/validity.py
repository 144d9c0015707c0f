"""The rules that a provider checks in a request: calls and results in pairs, no empty message, alternating roles, at
most four cache marks, and definitions for the tools that were called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import orjson

from gateway.context.bill.blocks import BlockReader
from gateway.context.bill.prompt_cache import marks_of
from gateway.domain.request import DialectName

Message = dict[str, Any]


class Breach(AssertionError):
    """A request that breaks a rule."""


def blocks(message: Message) -> list[Message]:
    return message["content"] if type(message["content"]) is list else []


def check_messages(body: Message) -> None:
    messages = body["messages"]
    if messages[0]["role"] != "user":
        raise Breach("the first message is not the user's")
    for at, message in enumerate(messages):
        if not message["content"] or any(block["type"] == "text" and not block["text"] for block in blocks(message)):
            raise Breach(f"message {at} is empty")
    for before, now in pairwise(messages):
        if before["role"] == now["role"]:
            raise Breach("roles do not alternate")
        calls = [block["id"] for block in blocks(before) if block["type"] == "tool_use"]
        if calls != [block["tool_use_id"] for block in blocks(now) if block["type"] == "tool_result"]:
            raise Breach("a call has lost its result")
    try:
        marks_of(BlockReader(len).read(body))
    except ValueError as error:
        raise Breach(str(error)) from error


def _check_chat(body: Message) -> None:
    waiting: set[str] = set()
    for at, message in enumerate(body["messages"]):
        if message.get("content") is None and not message.get("tool_calls"):
            raise Breach(f"message {at} is empty")
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Breach("a result has lost its call")
            waiting.discard(message["tool_call_id"])
        elif waiting:
            raise Breach("a call has lost its result")
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    if waiting:
        raise Breach("a call has lost its result")


def _check_responses(body: Message) -> None:
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    results = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    if sorted(calls) != sorted(results) or len(set(calls)) != len(calls):
        raise Breach("a call has lost its result")
    if not all(item.get("content") for item in body["input"] if item.get("type", "message") == "message"):
        raise Breach("a message is empty")


def _check_gemini(body: Message) -> None:
    contents = body["contents"]
    if contents[0].get("role", "user") != "user":
        raise Breach("the first message is not the user's")
    for before, now in pairwise(contents):
        if before["role"] == now["role"]:
            raise Breach("roles do not alternate")
        calls = [part["functionCall"]["name"] for part in before["parts"] if "functionCall" in part]
        if calls != [part["functionResponse"]["name"] for part in now["parts"] if "functionResponse" in part]:
            raise Breach("a call has lost its result")
    if not all(content["parts"] for content in contents):
        raise Breach("a message is empty")


CHECKS: Mapping[DialectName, Callable[[Message], None]] = {
    "anthropic_messages": check_messages,
    "openai_chat": _check_chat,
    "openai_responses": _check_responses,
    "gemini_generate": _check_gemini,
}


def user_texts(dialect: DialectName, body: Message) -> list[str]:
    """The words of the user, in order."""
    return [text for text in _user_texts(dialect, body) if text]


def _user_texts(dialect: DialectName, body: Message) -> Iterator[str]:
    if dialect == "gemini_generate":
        for content in body["contents"]:
            if content["role"] == "user":
                yield from (part["text"] for part in content["parts"] if "text" in part)
        return
    for item in body["input" if dialect == "openai_responses" else "messages"]:
        if item.get("role") != "user":
            continue
        if type(item["content"]) is str:
            yield item["content"]
        else:
            yield from (part["text"] for part in item["content"] if "text" in part)


def offered(dialect: DialectName, body: Message) -> list[str]:
    """The names of the tools whose definitions are sent."""
    tools = body.get("tools") or []
    if dialect == "gemini_generate":
        return [each["name"] for tool in tools for each in tool["functionDeclarations"]]
    return [(tool.get("function") or tool)["name"] for tool in tools]


def called(dialect: DialectName, body: Message) -> set[str]:
    """The names of the tools that the history calls."""
    match dialect:
        case "anthropic_messages":
            found = [block for message in body["messages"] for block in blocks(message)]
            return {block["name"] for block in found if block["type"] == "tool_use"}
        case "openai_chat":
            calls = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
            return {call["function"]["name"] for call in calls}
        case "openai_responses":
            return {item["name"] for item in body["input"] if item.get("type") == "function_call"}
    parts = [part for content in body["contents"] for part in content["parts"]]
    return {part["functionCall"]["name"] for part in parts if "functionCall" in part}


class ToolRules:
    """Checks the tool definitions of one session, request by request."""

    def __init__(self) -> None:
        self._last: bytes | None = None
        self._reduced = self._back = False

    def check(self, dialect: DialectName, body: Message, given: list[str], named: set[str], *, cold: bool) -> None:
        """`given`: names that the client offers. `named`: those that a text or call names. `cold`: whether the
        provider's cache has expired. Raises Breach."""
        names = offered(dialect, body)
        if missing := called(dialect, body).intersection(given) - set(names):
            raise Breach(f"called tools have no definition: {missing}")
        if [name for name in given if name in names] != names:
            raise Breach("other tools or another order")
        reduced = len(names) < len(given)
        if reduced and (missing := named - set(names)):
            raise Breach(f"named tools have no definition: {missing}")
        if reduced and self._back:
            raise Breach("definitions left again after they came back")
        sent = orjson.dumps(_without_marks(body.get("tools")))
        if reduced and not cold and self._last not in (None, sent):
            raise Breach("definitions left while the prompt was cached")
        self._back = self._back or (self._reduced and not reduced)
        self._reduced, self._last = reduced, sent


def _without_marks(tools: Any) -> Any:
    return [{name: value for name, value in tool.items() if name != "cache_control"} for tool in tools or ()]
