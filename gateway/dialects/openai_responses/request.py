"""Parses a Responses request. Validates the fields that the gateway uses, and reads `input` as turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import orjson

from gateway.dialects.openai_chat.request import FORWARDED, load_object
from gateway.dialects.openai_chat.turns import needed_by, read_parts
from gateway.dialects.requests.asides import has_asides, in_parts
from gateway.dialects.requests.fields import Wanted, check, read_model
from gateway.dialects.requests.output_limits import foreign_answers, longest
from gateway.domain.attachment import FILE_PARTS
from gateway.domain.continued import Continued
from gateway.domain.request import CompletionRequest, Controls, Role, Turn
from gateway.errors import BadRequest

INSTRUCTIONS = -1
"""The index of the turn that contains the `instructions`. Other turns have the index of their item in `input`."""
CALLS = frozenset({"function_call", "custom_tool_call"})
RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
DECLARATIONS = frozenset({"additional_tools", "tool_search_output"})
"""Types of items that declare tools, as the request field `tools` does."""
SEARCHES = frozenset({"tool_search_call", "web_search_call"})
"""Types of items that contain a search query. The search results are in the items after it."""
_TEXTS = frozenset({"input_text", "output_text"})
_OF_MESSAGES = frozenset({"type", "content"})
_OF_CUSTOM_CALLS = frozenset({"type", "input"})
_OF_DECLARATIONS = frozenset({"type", "tools"})
_OF_RESULTS = frozenset({"type", "output"})
_OBJECTS = frozenset({dict})

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_ELSEWHERE = {
    "conversation": "continue a response with previous_response_id, or send the conversation as input",
    "prompt": "send the prompt's text as instructions and input",
}
"""Name of a field that refers to data in the gateway's OpenAI account, which all teams share → the remedy that the
error text names."""


CONVERSATION = "input"
"""The field with the conversation."""


def parse(
    body: bytes,
    request_id: str,
    controls: Controls,
    headers: Mapping[bytes, bytes],
    continued: Continued | None = None,
) -> CompletionRequest:
    """Parse a request. Raises BadRequest, with the name of the wrong field, if the gateway cannot process the request.

    `continued`: the body, already parsed as the continuation of an earlier request; None: the body must be parsed.
    """
    fields = load_object(body) if continued is None else continued.body
    _check(fields)
    model = read_model(fields)
    stream = fields.get("stream") is True
    turns = read_turns(fields, () if continued is None else continued.turns)
    return CompletionRequest(
        id=request_id,
        dialect="openai_responses",
        raw=body,
        body=fields,
        model=model,
        turns=turns,
        stream=stream,
        max_output_tokens=longest(fields, "openai_responses"),
        temperature=fields.get("temperature"),
        needs=read_needs(fields, turns),
        wants_usage=stream,
        controls=controls,
        headers={name: headers[name] for name in headers if name in FORWARDED},
        parallel=foreign_answers(fields),
        continued=continued,
    )


_WANTED: dict[str, Wanted] = {
    "stream": Wanted((bool,), "true or false"),
    "stream_options": Wanted((dict,), "an object"),
    "background": Wanted((bool,), "true or false"),
    "store": Wanted((bool,), "true or false"),
    "parallel_tool_calls": Wanted((bool,), "true or false"),
    "instructions": Wanted((str,), "a string"),
    "previous_response_id": Wanted((str,), "the id of a response"),
    "temperature": Wanted((int, float), "a number"),
    "top_p": Wanted((int, float), "a number"),
    "top_logprobs": Wanted((int,), "a whole number from 0 to 20", 0, 20),
    "max_output_tokens": Wanted((int,), "a whole number of at least 1", 1),
    "tools": Wanted((list,), "an array"),
    "tool_choice": Wanted((str, dict), "a string or an object"),
    "text": Wanted((dict,), "an object"),
    "reasoning": Wanted((dict,), "an object"),
    "include": Wanted((list,), "an array of strings"),
    "metadata": Wanted((dict,), "an object"),
}


def _check(fields: dict[str, Any]) -> None:
    check(fields, _WANTED)
    if fields.get("background"):
        raise BadRequest(
            "Responses are not made in the background here: leave background out, or ask for a batch.",
            param="background",
        )
    for name, remedy in _ELSEWHERE.items():
        if fields.get(name) is not None:
            raise BadRequest(f"{name} names what is kept at OpenAI, which is not read here: {remedy}.", param=name)
    form = (fields.get("text") or {}).get("format")
    if form is not None and type(form) is not dict:
        raise BadRequest("text.format must be an object.", param="text.format")
    _check_tools(fields.get("tools") or [], "tools")


def read_turns(fields: Mapping[str, Any], known: Sequence[Turn] = ()) -> list[Turn]:
    """Read the instructions and the items of `input` as turns. Reasoning items are not turns. `known`: the turns of the
    first items, already read for an earlier request. Raises BadRequest with the location of an error."""
    turns: list[Turn] = []
    if instructions := fields.get("instructions"):
        turns.append(Turn(INSTRUCTIONS, "system", instructions))
    value = fields.get("input")
    if type(value) is str:
        return [*turns, Turn(0, "user", value)]
    continues = bool(fields.get("previous_response_id"))
    if value is None and continues:
        value = []
    elif type(value) is not list or not (value or continues):
        raise BadRequest("input must be a string or an array with at least one item.", param="input")
    turns += known
    has_uncounted, begins = False, known[-1].index + 1 if known else 0
    for index, item in enumerate(value[begins:], begins):
        turn = _turn(index, item)
        if turn is None:
            has_uncounted = True
            continue
        turn.asides = turn.asides or has_uncounted
        has_uncounted = False
        turns.append(turn)
    if has_uncounted and turns:
        turns[-1] = replace(turns[-1], asides=True)  # the turn may be one of `known`
    return turns or [Turn(INSTRUCTIONS, "user", "", asides=has_uncounted)]


def kind_of(item: Mapping[str, Any]) -> str:
    """The type of the item. Messages and references may omit the type; it is then inferred from the other fields."""
    kind = item.get("type")
    if type(kind) is str:
        return kind
    return "message" if "role" in item else "item_reference"


def _turn(index: int, item: Any) -> Turn | None:
    where = f"input[{index}]"
    if type(item) is not dict or not (item.get("type") is None or type(item["type"]) is str):
        raise BadRequest(f"{where} must be an object with a type.", param=where)
    kind = kind_of(item)
    if kind == "message":
        return _message(index, item, where)
    if kind == "reasoning":
        _check_reasoning(item, where)
        return None
    if kind in CALLS:
        _need_text(item, where, "call_id", "name", "arguments" if kind == "function_call" else "input")
        # a function call's arguments are counted elsewhere
        text_of_call = item["input"] if kind == "custom_tool_call" else ""
        asides = kind == "custom_tool_call" and has_asides(item, _OF_CUSTOM_CALLS)
        return Turn(index, "assistant", text_of_call, calls=(item["call_id"],), asides=asides)
    if kind in RESULTS:
        _need_text(item, where, "call_id")
        text, images, files = _parts(item.get("output"), f"{where}.output")
        asides = has_asides(item, _OF_RESULTS) or in_parts(item.get("output"), _TEXTS, "input_image")
        return Turn(index, "tool", text, (), (item["call_id"],), images, files, asides)
    if kind in DECLARATIONS:  # declarations become system turns, which are neither dropped nor shortened
        _check_tools(item.get("tools"), f"{where}.tools")
        return Turn(index, "system", orjson.dumps(item["tools"]).decode(), asides=has_asides(item, _OF_DECLARATIONS))
    if kind == "tool_search_call":
        return None
    call = item.get("call_id")
    ids = (call,) if type(call) is str else ()
    if kind.endswith("_output"):
        return Turn(index, "tool", "", results=ids, files=_shown(item.get("output")), asides=True)
    return Turn(index, "assistant", "", calls=ids, files=int(kind == "image_generation_call"), asides=True)


def _check_tools(tools: Any, where: str) -> None:
    if type(tools) is not list:
        raise BadRequest(f"{where} must be an array.", param=where)
    if not _OBJECTS.issuperset(map(type, tools)):  # quick, because usually there is no index to find
        index = next(index for index, tool in enumerate(tools) if type(tool) is not dict)
        raise BadRequest(f"{where}[{index}] must be an object.", param=f"{where}[{index}]")


def _need_text(item: Mapping[str, Any], where: str, *names: str) -> None:
    for name in names:
        if type(item.get(name)) is not str:
            raise BadRequest(f"{where}.{name} must be a string.", param=f"{where}.{name}")


def _check_reasoning(item: Mapping[str, Any], where: str) -> None:
    for name in ("summary", "content"):
        parts = item.get(name)
        if parts is not None and not (type(parts) is list and all(type(part) is dict for part in parts)):
            raise BadRequest(f"{where}.{name} must be an array of objects.", param=f"{where}.{name}")


def _message(index: int, item: Mapping[str, Any], where: str) -> Turn:
    _need_text(item, where, "role")
    text, images, files = _parts(item.get("content"), f"{where}.content")
    asides = has_asides(item, _OF_MESSAGES) or in_parts(item.get("content"), _TEXTS, "input_image")
    return Turn(index, _ROLES.get(item["role"], "user"), text, images=images, files=files, asides=asides)


def _shown(output: Any) -> int:
    """The number of files, such as screenshots, in the `output` of a tool. The tool has a type that OpenAI defines."""
    parts = output if type(output) is list else (output,)
    return sum(1 for part in parts if type(part) is dict and part.get("type") in FILE_PARTS)


def _parts(content: Any, where: str) -> tuple[str, int, int]:
    """(Text, number of images, number of files) in `content`, a message's content or a call's output."""
    if type(content) is str:
        return content, 0, 0
    return read_parts(content, where, _TEXTS, "input_image")


def read_needs(fields: Mapping[str, Any], turns: list[Turn]) -> frozenset[str]:
    """The capabilities that a backend needs for this request."""
    needs = needed_by(turns)
    if next(declarations(fields), None):
        needs.add("tools")
    if ((fields.get("text") or {}).get("format") or {}).get("type") == "json_schema":
        needs.add("json_schema")
    if wants_logprobs(fields):
        needs.add("logprobs")
    if (fields.get("reasoning") or {}).get("effort") not in (None, "none"):
        needs.add("reasoning")
    return frozenset(needs)


def declarations(fields: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each tool or namespace that the request declares, and its location in the request."""
    for index, tool in enumerate(fields.get("tools") or ()):
        yield tool, f"tools[{index}]"
    value = fields.get("input")
    for place, item in enumerate(value) if type(value) is list else ():
        if item.get("type") in DECLARATIONS:
            for index, tool in enumerate(item["tools"]):
                yield tool, f"input[{place}].tools[{index}]"


def wants_logprobs(fields: Mapping[str, Any]) -> bool:
    """Whether the client asked for log-probabilities."""
    return bool(fields.get("top_logprobs")) or "message.output_text.logprobs" in (fields.get("include") or ())


def kept(items: list[dict[str, Any]], dropped: Set[int]) -> list[int]:
    """Indexes of the items that remain after the items with an index in `dropped` are removed. A reasoning item is
    removed together with the item after it."""
    places: list[int] = []
    follows = len(items)
    for place in range(len(items) - 1, -1, -1):
        if kind_of(items[place]) != "reasoning":
            follows = place
        if follows not in dropped:
            places.append(place)
    return places[::-1]
