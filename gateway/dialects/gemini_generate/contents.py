"""Converts Gemini's contents to chat messages."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.message import signed
from gateway.errors import BadRequest

Part = dict[str, Any]

_MODELS = frozenset({"text", "functionCall", "thoughtSignature"})
"""Fields of a model's parts that are translated."""
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def messages(contents: Any, system: Any) -> list[dict[str, Any]]:
    """The chat messages for Gemini's contents and system instruction. Raises BadRequest with the location of a part
    that cannot be translated."""
    found = []
    if system is not None and (text := "\n".join(_text(part) for part in _parts(system, "systemInstruction"))):
        found.append({"role": "system", "content": text})
    given = [contents] if type(contents) is dict else contents
    if type(given) is not list or not given:
        raise BadRequest("contents must be an array with at least one content.", param="contents")
    calls = _Calls()
    for index, content in enumerate(given):
        where = f"contents[{index}]"
        parts = _parts(content, where)
        if content.get("role") == "model":
            found.append(_assistant(parts, calls, where))
        else:
            found += _user(parts, calls, where)
    return found


class _Calls:
    """Assigns ids to function calls that have none. A result may lack an id too. Then the result belongs to the first
    call with the same name that has no result yet."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []
        """Name and id of each call that has no result yet."""
        self._made = 0

    def made(self, call: dict[str, Any]) -> str:
        self._made += 1
        name = call.get("id") or f"call_{self._made}"
        self._waiting.append((call["name"], name))
        return str(name)

    def answered(self, result: dict[str, Any], where: str) -> str:
        for place, (name, call_id) in enumerate(self._waiting):
            if call_id == result.get("id") or (not result.get("id") and name == result.get("name")):
                del self._waiting[place]
                return call_id
        raise BadRequest(f"{where} answers no call before it: {result.get('name')}.", param=where)


def _parts(content: Any, where: str) -> list[Part]:
    """The parts of a content. A plain text counts as one part, as in Google's SDKs."""
    if type(content) is str:
        return [{"text": content}]
    parts = content.get("parts") if type(content) is dict else None
    if type(parts) is not list or not all(type(part) is dict for part in parts):
        raise BadRequest(f"{where}.parts must be an array of objects.", param=f"{where}.parts")
    return parts


def _text(part: Part) -> str:
    text = part.get("text")
    return text if type(text) is str else ""


def _assistant(parts: list[Part], calls: _Calls, where: str) -> dict[str, Any]:
    texts = [_text(part) for part in parts if not part.get("thought")]
    thoughts = [_text(part) for part in parts if part.get("thought")]
    for place, part in enumerate(parts):
        if not _MODELS.intersection(part):
            raise _unknown(part, f"{where}.parts[{place}]", "text and functionCall")
    made = [_call(part, calls, f"{where}.parts[{place}]") for place, part in enumerate(parts) if "functionCall" in part]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    return {**message, "tool_calls": made} if made else {**message, "content": message["content"] or ""}


def _call(part: Part, calls: _Calls, where: str) -> dict[str, Any]:
    call = part["functionCall"]
    if type(call) is not dict or type(call.get("name")) is not str:
        raise BadRequest(f"{where}.functionCall must have a name.", param=f"{where}.functionCall")
    function = {"name": call["name"], "arguments": orjson.dumps(call.get("args") or {}).decode()}
    found = {"id": calls.made(call), "type": "function", "function": function}
    signature = part.get("thoughtSignature")
    return signed(found, signature) if signature else found


def _user(parts: list[Part], calls: _Calls, where: str) -> list[dict[str, Any]]:
    """The chat messages for a user's content: one message for each function result, then one message for all other
    parts."""
    results, others = [], []
    for place, part in enumerate(parts):
        at = f"{where}.parts[{place}]"
        if "functionResponse" in part:
            result, name = part["functionResponse"], f"{at}.functionResponse"
            results.append(_result(result, calls, name))
            others += [_chat_part(*pair) for pair in _beside(result, name)]
        else:
            others.append(_chat_part(part, at))
    if not others:
        return results
    alone = others[0]["text"] if len(others) == 1 and others[0]["type"] == "text" else others
    return [*results, {"role": "user", "content": alone}]


def _result(result: Any, calls: _Calls, where: str) -> dict[str, Any]:
    if type(result) is not dict:
        raise BadRequest(f"{where} must be an object.", param=where)
    given = result.get("response")
    only = (
        next(iter(given.values())) if type(given) is dict and given.keys() <= {"result", "output"} and given else None
    )
    text = only if type(only) is str else orjson.dumps(given).decode()
    return {"role": "tool", "tool_call_id": calls.answered(result, where), "content": text}


def _beside(result: Part, where: str) -> list[tuple[Part, str]]:
    """The files in a function's result, each with its location. Chat allows only texts in a result, so the files are
    sent after the result."""
    given = result.get("parts") or ()
    return [(part, f"{where}.parts[{place}]") for place, part in enumerate(given)]


def _unknown(part: Part, where: str, known: str) -> BadRequest:
    named = next((name for name in part if name not in ("thought", "thoughtSignature")), "nothing")
    return BadRequest(f"{where} has {named}; {known} are translated.", param=where)


def _chat_part(part: Part, where: str) -> dict[str, Any]:
    if type(part.get("text")) is str:
        return {"type": "text", "text": part["text"]}
    data = part.get("inlineData")
    if type(data) is not dict or type(data.get("data")) is not str or type(data.get("mimeType")) is not str:
        raise _unknown(part, where, "text, inlineData and functionResponse")
    kind: str = data["mimeType"].lower()
    body = data["data"].replace("-", "+").replace("_", "/")  # Google's SDKs write both alphabets of base64
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{body}"}}
    if form := _SOUNDS.get(kind):
        return {"type": "input_audio", "input_audio": {"data": body, "format": form}}
    return {"type": "file", "file": {"filename": "file", "file_data": f"data:{kind};base64,{body}"}}
