"""The scripted upstream in Google's words: `generateContent`, whole and as server-sent events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from tests.clients.brain import Answer, Call, Question, Refused, Tool, Turn

PATH = re.compile(r"/v1beta/models/(?P<model>[^/]+):(?:generateContent|(?P<stream>streamGenerateContent))")
_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
_FIELDS = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
_PARTS = ("text", "inlineData", "functionCall", "functionResponse")
_BESIDE = {"thought", "thoughtSignature"}


def error(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}


def parse(body: dict[str, Any]) -> Question:
    _check(body)
    system = body.get("systemInstruction") or {"parts": []}
    turns = [Turn("system", "\n".join(part["text"] for part in system["parts"]))]
    for content in body["contents"]:
        turns.extend(_turns(content))
    calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    allowed, forced = calling.get("allowedFunctionNames") or [], calling.get("mode") == "ANY"
    offered = [each for tool in body.get("tools") or () for each in tool["functionDeclarations"]]
    config = body.get("generationConfig") or {}
    return Question(
        turns=tuple(turns),
        tools={} if calling.get("mode") == "NONE" else {tool["name"]: _tool(tool) for tool in offered},
        forced=forced and not allowed,
        wanted=allowed[0] if forced and allowed else "",
        schema=_schema(config) if config.get("responseMimeType") == "application/json" else None,
        thinks=bool((config.get("thinkingConfig") or {}).get("includeThoughts")),
    )


def _schema(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config.get("responseJsonSchema") or _plain(config.get("responseSchema") or {})
    return found


def _check(body: dict[str, Any]) -> None:
    """Google's own checks, as far as its reference tells them."""
    if not body["contents"] or not body.keys() - {"model", "stream"} <= _FIELDS:
        raise Refused(400, f"No contents, or unknown fields: {[*body]}.")
    owed: list[str] = []
    for content in body["contents"]:
        if content["role"] not in ("user", "model") or not content["parts"]:
            raise Refused(400, "A content needs a role and parts.")
        if not all(part.keys() - _BESIDE in ({name} for name in _PARTS) for part in content["parts"]):
            raise Refused(400, f"Unknown parts: {[[*part] for part in content['parts']]}.")
        answered = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        if sorted(answered) != sorted(owed):
            raise Refused(400, f"The turn before has the calls {owed}; the responses are to {answered}.")
        owed = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]


def _tool(declared: dict[str, Any]) -> Tool:
    return Tool(declared.get("parametersJsonSchema") or _plain(declared.get("parameters") or {}))


def _plain(schema: Any) -> Any:
    """A JSON schema for one of Google's own, whose types are in capitals."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: inner.lower() if name == "type" and isinstance(inner, str) else _plain(inner)
        for name, inner in schema.items()
    }


def _turns(content: dict[str, Any]) -> Iterator[Turn]:
    for part in content["parts"]:
        if answered := part.get("functionResponse"):
            given = answered["response"]
            text = given.get("result", given.get("error"))
            yield Turn("tool", text if isinstance(text, str) else orjson.dumps(given).decode())
    if text := "\n".join(part["text"] for part in content["parts"] if "text" in part and not part.get("thought")):
        yield Turn("assistant" if content["role"] == "model" else "user", text)


def render(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    thoughts = [{"text": said.thought, "thought": True}] if said.thought else []
    texts = [{"text": said.text}] if said.text else []
    return _reply(body, said, [*thoughts, *texts, *_calls(said)], finishReason=_finish(said))


def events(body: dict[str, Any], said: Answer) -> Iterator[bytes]:
    for word in said.thought_words:
        yield _event(_reply(body, said, [{"text": word, "thought": True}]))
    for number, word in enumerate(said.words):
        if said.broken and number == 2:
            return
        yield _event(_reply(body, said, [{"text": word}]))
    yield _event(_reply(body, said, _calls(said) or [{"text": ""}], finishReason=_finish(said)))


def _finish(said: Answer) -> str:
    return "MAX_TOKENS" if said.cut else "STOP"


def _calls(said: Answer) -> list[dict[str, Any]]:
    return [_call(call) for call in said.calls]


def _call(call: Call) -> dict[str, Any]:
    return {"functionCall": {"name": call.name, "args": call.arguments}, "thoughtSignature": "c2lnbmVk"}


def _reply(body: dict[str, Any], said: Answer, parts: list[dict[str, Any]], **more: str) -> dict[str, Any]:
    usage = {
        "promptTokenCount": said.input_tokens,
        "candidatesTokenCount": said.output_tokens,
        "totalTokenCount": said.input_tokens + said.output_tokens,
    }
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
    reply = {"candidates": [candidate], "modelVersion": body["model"], "responseId": f"brain{said.number}"}
    return {**reply, "usageMetadata": usage}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\r\n\r\n"
