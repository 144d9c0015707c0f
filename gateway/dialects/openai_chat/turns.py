"""Reads messages as turns: role, text, tool calls, tool results, images."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from gateway.dialects.requests.asides import has_asides, in_parts
from gateway.domain.attachment import FILE_PARTS
from gateway.domain.request import Role, Turn
from gateway.errors import BadRequest

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""Role of a message → role of its turn. A message with an unknown role becomes a `user` turn, and the message is sent
to the backend unchanged."""
_TEXTS = frozenset({"text"})
_UNCALLED = frozenset({"content"})
_COUNTED = _UNCALLED | {"tool_calls"}
_CALLS, _RESULTS, _IMAGES = attrgetter("calls"), attrgetter("results"), attrgetter("images")


def read_turns(messages: Any, known: Sequence[Turn] = ()) -> list[Turn]:
    """Read one turn for each message. `known`: the turns of the first messages, already read for an earlier request.
    Raises BadRequest with the location of a value of a wrong type."""
    if type(messages) is not list or not messages:
        raise BadRequest("messages must be an array with at least one message.", param="messages")
    turns = [*known]
    for index, message in enumerate(messages[len(known) :], len(known)):
        if type(message) is dict and len(message) == 2:  # the most common message has only a role and a text
            role, content = message.get("role"), message.get("content")
            if type(content) is str and type(role) is str and role in _ROLES:
                turns.append(Turn(index, _ROLES[role], content))
                continue
        turns.append(_turn(index, message))
    return turns


def needed_by(turns: list[Turn]) -> set[str]:
    """The capabilities that a backend needs to answer these turns."""
    needs = set()
    if any(map(_CALLS, turns)) or any(map(_RESULTS, turns)):  # faster than a generator
        needs.add("tools")
    if any(map(_IMAGES, turns)):
        needs.add("vision")
    return needs


def _turn(index: int, message: Any) -> Turn:
    if type(message) is not dict:
        raise BadRequest(f"messages[{index}] must be an object.", param=f"messages[{index}]")
    role, content = message.get("role"), message.get("content")
    if type(role) is not str:
        where = f"messages[{index}].role"
        raise BadRequest(f"{where} must be a string such as 'user'.", param=where)
    kind = _ROLES.get(role, "user")
    where = f"messages[{index}]"
    text, images, files = (content, 0, 0) if type(content) is str else _content(content, f"{where}.content")
    if type(message.get("audio")) is dict:  # an id that refers to an earlier spoken answer
        files += 1
    calls, results = _calls(message, where), _answered(message, role)
    asides = has_asides(message, _COUNTED if calls else _UNCALLED) or in_parts(content, _TEXTS, "image_url")
    return Turn(index, kind, text, calls, results, images, files, asides)


def _content(content: Any, where: str) -> tuple[str, int, int]:
    return ("", 0, 0) if content is None else read_parts(content, where, _TEXTS, "image_url")


def read_parts(content: Any, where: str, texts_are: frozenset[str], image_is: str) -> tuple[str, int, int]:
    """Read the content parts of a message. Returns (text, number of images, number of other files). `texts_are`,
    `image_is`: types of text and image parts. Raises BadRequest with the location of a wrong type."""
    if type(content) is not list:
        raise BadRequest(f"{where} must be a string or an array of parts.", param=where)
    texts, images, files = [], 0, 0
    for number, part in enumerate(content):
        if type(part) is not dict or type(part.get("type")) is not str:
            raise BadRequest(f"{where}[{number}] must be an object with a type.", param=f"{where}[{number}]")
        form = part["type"]
        text = part.get("refusal") if form == "refusal" else part.get("text")
        if type(text) is str:
            texts.append(text)
        elif form in texts_are:
            raise BadRequest(f"{where}[{number}].text must be a string.", param=f"{where}[{number}].text")
        if form == image_is:
            images += 1
        elif form in FILE_PARTS:
            files += 1
    return "\n".join(texts), images, files


def _calls(message: dict[str, Any], where: str) -> tuple[str, ...]:
    """The ids of the tool calls in a message. The deprecated `function_call` has no id, so an id is made from the name
    of the function."""
    calls, function = message.get("tool_calls"), message.get("function_call")
    if calls is None:
        return (_old_id(function.get("name")),) if type(function) is dict else ()
    if type(calls) is not list or not all(type(call) is dict for call in calls):
        raise BadRequest(f"{where}.tool_calls must be an array of objects.", param=f"{where}.tool_calls")
    return tuple(call["id"] for call in calls if type(call.get("id")) is str)


def _answered(message: dict[str, Any], role: str) -> tuple[str, ...]:
    answered = message.get("tool_call_id")
    if type(answered) is str:
        return (answered,)
    return (_old_id(message.get("name")),) if role == "function" else ()


def _old_id(name: object) -> str:
    return f"function_call:{name}"
