"""The scripted upstream in the words of OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from tests.clients.brain import Answer, Call, Question, Tool, Turn
from tests.clients.brain_chat import text_of

_COMPLETED = {"object": "response", "created_at": 1_700_000_000, "status": "completed"}
_CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
_NULLS = ("error", "incomplete_details", "instructions", "temperature", "top_p", "metadata", "previous_response_id")


def parse(body: dict[str, Any]) -> Question:
    turns = [Turn("system", str(body.get("instructions") or ""))]
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        turns.extend(_turn(item))
    choice = body.get("tool_choice")
    form = (body.get("text") or {}).get("format") or {}
    tools = dict(_tools(body.get("tools") or ()))
    for item in given if isinstance(given, list) else ():
        if item.get("type") == "additional_tools":
            tools.update(_tools(item["tools"]))
    return Question(
        turns=tuple(turns),
        tools=tools,
        forced=choice == "required",
        wanted=choice.get("name", "") if isinstance(choice, dict) else "",
        schema=form.get("schema", {}) if form.get("type") in ("json_schema", "json_object") else None,
    )


def _tools(given: Iterable[dict[str, Any]], namespace: str = "") -> Iterator[tuple[str, Tool]]:
    for tool in given:
        match tool["type"]:
            case "function":
                yield tool["name"], Tool(tool.get("parameters") or {}, namespace=namespace)
            case "custom":
                yield tool["name"], Tool(custom=True, namespace=namespace)
            case "namespace":
                yield from _tools(tool["tools"], tool["name"])


def _turn(item: dict[str, Any]) -> Iterator[Turn]:
    kind = item.get("type", "message")
    if kind == "message":
        role = {"developer": "system"}.get(item["role"], item["role"])
        yield Turn(role, text_of(item["content"]))
    elif kind.endswith("_output"):
        yield Turn("tool", text_of(item["output"]))


def render(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    return _response(body, said, _items(said))


def events(body: dict[str, Any], said: Answer) -> Iterator[bytes]:
    number = -1

    def event(kind: str, **more: Any) -> bytes:
        nonlocal number
        number += 1
        value = {"type": kind, "sequence_number": number, **more}
        return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"

    begun = {**_response(body, said, []), "status": "in_progress", "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(_items(said)):
        yield event("response.output_item.added", output_index=index, item=_empty(item))
        for sent, (kind, more) in enumerate(_inside(item, said)):
            if said.broken and sent == 3:
                return
            yield event(kind, item_id=item["id"], output_index=index, **more)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.incomplete" if said.cut else "response.completed", response=render(body, said))


def _items(said: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.thought:
        summary = [{"type": "summary_text", "text": said.thought}]
        items.append(
            {"type": "reasoning", "id": f"rs_brain{said.number}", "summary": summary, "encrypted_content": "sealed"}
        )
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}]
        items.append(
            {
                "type": "message",
                "id": f"msg_brain{said.number}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    return [*items, *(_call(said, number, call) for number, call in enumerate(said.calls))]


def _call(said: Answer, number: int, call: Call) -> dict[str, Any]:
    kind, given = ("custom_tool_call", "input") if call.tool.custom else ("function_call", "arguments")
    return {
        "type": kind,
        "id": f"fc_brain{said.number}x{number}",
        "call_id": f"call_brain{said.number}x{number}",
        "name": call.name,
        given: call.given,
        "status": "completed",
        **({"namespace": call.tool.namespace} if call.tool.namespace else {}),
    }


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    """`item` as it is announced."""
    blanks: dict[str, dict[str, Any]] = {
        "reasoning": {"summary": []},
        "message": {"content": []},
        "function_call": {"arguments": ""},
        "custom_tool_call": {"input": ""},
    }
    return {**item, **blanks[item["type"]], **({"status": "in_progress"} if "status" in item else {})}


def _inside(item: dict[str, Any], said: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    match item["type"]:
        case "reasoning":
            yield from _texts("reasoning_summary", "summary_index", item["summary"][0], said.thought_words)
        case "message":
            yield from _texts("output", "content_index", item["content"][0], said.words)
        case "custom_tool_call":
            yield "response.custom_tool_call_input.delta", {"delta": item["input"]}
            yield "response.custom_tool_call_input.done", {"input": item["input"]}
        case _:
            json = item["arguments"]
            for start in range(0, len(json), 9):
                yield "response.function_call_arguments.delta", {"delta": json[start : start + 9]}
            yield "response.function_call_arguments.done", {"arguments": json, "name": item["name"]}


def _texts(kind: str, index: str, part: dict[str, Any], words: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    place = {index: 0}
    extra: dict[str, Any] = {"logprobs": []} if kind == "output" else {}
    room = "content_part" if kind == "output" else "reasoning_summary_part"
    yield f"response.{room}.added", {**place, "part": {**part, "text": ""}}
    for word in words:
        yield f"response.{kind}_text.delta", {**place, **extra, "delta": word}
    yield f"response.{kind}_text.done", {**place, **extra, "text": part["text"]}
    yield f"response.{room}.done", {**place, "part": part}


def _response(body: dict[str, Any], said: Answer, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": said.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": said.output_tokens,
        "output_tokens_details": {"reasoning_tokens": len(said.thought_words)},
        "total_tokens": said.input_tokens + said.output_tokens,
    }
    return {
        "id": f"resp_brain{said.number}",
        **_COMPLETED,
        **{name: body.get(name) for name in _NULLS},
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "usage": usage,
        **(_CUT if said.cut else {}),
    }
