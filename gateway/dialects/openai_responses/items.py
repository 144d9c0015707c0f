"""Converts items of a Responses `input` to OpenAI chat messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from gateway.dialects.anthropic_messages.thinking import carried
from gateway.dialects.openai_chat.message import signed
from gateway.dialects.openai_responses.request import CALLS, DECLARATIONS, RESULTS, SEARCHES, kind_of
from gateway.dialects.openai_responses.thinking import unpack
from gateway.dialects.openai_responses.tools import chat_name, custom_arguments
from gateway.errors import BadRequest

Item = dict[str, Any]
Numbered = tuple[int, Item]
"""An item and its index in the client's `input`."""
Content = str | list[Item]
_INSTRUCTING = ("system", "developer")


def chat_messages(instructions: str | None, items: Iterable[Numbered]) -> list[Item]:
    """Convert instructions and items to chat messages. Raises BadRequest with the location of an item that chat
    cannot express."""
    conversation = _Conversation()
    if instructions:
        conversation.add({"role": "system", "content": instructions})
    for index, item in items:
        conversation.take(item, f"input[{index}]")
    conversation.show()
    return conversation.messages


def shortened(item: Item, text: str) -> Item:
    """`item` with its text replaced by `text`. Parts that are not text stay in place."""
    name = "output" if kind_of(item) in RESULTS else "input" if kind_of(item) == "custom_tool_call" else "content"
    value = item.get(name)
    if type(value) is not list:
        return {**item, name: text}
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    others = [part for part in value if type(part.get("text")) is not str]
    return {**item, name: [{"type": kind, "text": text}, *others]}


class _Conversation:
    """Collects chat messages. Adjacent items of the assistant become one message, as chat requires."""

    def __init__(self) -> None:
        self.messages: list[Item] = []
        self._current: Item | None = None
        """The assistant message to which the next items may be added; None if the next item begins another message."""
        self._thought: Item = {}
        """Reasoning that will be added to the next assistant message."""
        self._signature = ""
        """Google's signature of the next call."""
        self._shown: list[Item] = []
        """Parts of tool results that are not text. Chat allows these parts only in user messages, so a user message
        with these parts follows the last tool result."""

    def add(self, message: Item) -> None:
        if message["role"] != "tool":
            self.show()
        self._current, self._thought = None, {}
        self.messages.append(message)

    def take(self, item: Item, where: str) -> None:
        kind = kind_of(item)
        if kind == "message":
            self._message(item, where)
        elif kind == "reasoning":
            self._reason(item)
        elif kind in CALLS:
            self._call(item)
        elif kind in RESULTS:
            self._result(item, f"{where}.output")
        elif kind == "item_reference":
            raise BadRequest(f"{where} refers to an item that is not stored here; send the item itself.", param=where)
        elif kind not in DECLARATIONS and kind not in SEARCHES:
            raise BadRequest(f"{where}.type {kind!r} means nothing to this model's provider.", param=f"{where}.type")

    def show(self) -> None:
        """Add a user message with the parts of tool results that are not text. Does nothing if there are no such
        parts."""
        shown, self._shown = self._shown, []
        if shown:
            self.messages.append({"role": "user", "content": shown})

    def _result(self, item: Item, where: str) -> None:
        content, call_id = _content(item["output"], where), item["call_id"]
        if not isinstance(content, str):
            beside = [part for part in content if part["type"] != "text"]
            content = [part for part in content if part["type"] == "text"]
            if beside:
                self._shown += [{"type": "text", "text": f"This is part of the result of {call_id}:"}, *beside]
                content.append({"type": "text", "text": "(The user shows the rest of this result.)"})
        self.add({"role": "tool", "tool_call_id": call_id, "content": content})

    def _message(self, item: Item, where: str) -> None:
        role, content = item["role"], _content(item.get("content"), f"{where}.content")
        if role == "assistant":
            self._say(content)
        elif role not in _INSTRUCTING:
            self.add({"role": role, "content": content})
        else:
            self._instruct(content)

    def _instruct(self, content: Content) -> None:
        """Add an instruction to the first system message, because many open models accept only one system message."""
        if not isinstance(content, str) and all(part.keys() == {"type", "text"} for part in content):
            content = "\n\n".join(part["text"] for part in content)
        first = self.messages[0] if len(self.messages) == 1 else {}
        if first.get("role") == "system" and type(first["content"]) is str and type(content) is str:
            first["content"] = f"{first['content']}\n\n{content}"
        else:
            self.add({"role": "system", "content": content})

    def _say(self, content: Content) -> None:
        """Add text of the assistant to the conversation. If the last assistant message has calls, the text is added to
        this message, because the results of calls must follow directly."""
        current = self._assistant(anew=self._current is not None and "tool_calls" not in self._current)
        if current.get("content") is None:
            current["content"] = content
        else:
            current["content"] = [*_as_parts(current["content"]), *_as_parts(content)]

    def _reason(self, item: Item) -> None:
        thought = self._thought
        if self._current is not None and "tool_calls" in self._current:
            thought = self._current
        texts = [part.get("text") for part in (*(item.get("summary") or ()), *(item.get("content") or ()))]
        if text := "\n\n".join(text for text in texts if type(text) is str and text):
            before = thought.get("reasoning_content")
            thought["reasoning_content"] = f"{before}\n\n{text}" if before else text
        blocks = unpack(item.get("encrypted_content"))
        self._signature = next(filter(None, map(carried, blocks)), self._signature)
        if blocks := [block for block in blocks if not carried(block)]:
            thought["thinking_blocks"] = [*thought.get("thinking_blocks", ()), *blocks]

    def _call(self, item: Item) -> None:
        arguments = item.get("arguments")
        if item["type"] == "custom_tool_call":
            arguments = orjson.dumps(custom_arguments(item["input"])).decode()
        call = {
            "id": item["call_id"],
            "type": "function",
            "function": {"name": chat_name(item["name"], item.get("namespace")), "arguments": arguments},
        }
        if self._signature:
            call, self._signature = signed(call, self._signature), ""
        self._assistant(anew=bool(self._thought)).setdefault("tool_calls", []).append(call)

    def _assistant(self, *, anew: bool) -> Item:
        """The assistant message to which an item is added. `anew`: whether to begin a new message in any case. A new
        message begins with the reasoning that was read before it."""
        if self._current is None or anew:
            current = {"role": "assistant", "content": None, **self._thought}
            self.add(current)
            self._current = current
        return self._current


def _as_parts(content: Content) -> list[Item]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _content(content: Any, where: str) -> Content:
    """The content in the format of chat. A single text becomes a string, which every backend accepts."""
    if type(content) is not list:
        text: str = content
        return text
    parts = [_part(part, f"{where}[{number}]") for number, part in enumerate(content)]
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        only: str = parts[0]["text"]
        return only
    return parts


def _part(part: Item, where: str) -> Item:
    kind = part["type"]
    if kind in ("input_text", "output_text", "text", "summary_text"):
        if type(part.get("text")) is not str:
            raise BadRequest(f"{where}.text must be a string.", param=f"{where}.text")
        converted: Item = {"type": "text", "text": part["text"]}
    elif kind == "refusal":
        converted = {"type": "refusal", "refusal": part.get("refusal") or ""}
    elif kind == "input_image":
        converted = {"type": "image_url", "image_url": _image(part, where)}
    elif kind == "input_file":
        converted = {"type": "file", "file": _file(part, where)}
    elif kind == "input_audio":
        converted = {"type": "input_audio", "input_audio": part.get("input_audio")}
    else:
        raise BadRequest(f"{where}.type {kind!r} means nothing to this model's provider.", param=f"{where}.type")
    if type(part.get("prompt_cache_breakpoint")) is dict:
        converted["cache_control"] = {"type": "ephemeral"}
    elif part.get("cache_control"):
        converted["cache_control"] = part["cache_control"]
    return converted


def _image(part: Item, where: str) -> Item:
    url = part.get("image_url")
    if type(url) is not str:
        if part.get("file_id"):
            raise _stored_elsewhere(where)
        raise BadRequest(f"{where}.image_url must be a string.", param=f"{where}.image_url")
    return {"url": url, "detail": part["detail"]} if type(part.get("detail")) is str else {"url": url}


def _file(part: Item, where: str) -> Item:
    if part.get("file_id"):
        raise _stored_elsewhere(where)
    if type(part.get("file_data")) is not str:
        name = f"{where}.file_url" if part.get("file_url") else f"{where}.file_data"
        raise BadRequest(f"This model takes a file's bytes only: {where}.file_data must be a data URL.", param=name)
    return {name: part[name] for name in ("filename", "file_data") if type(part.get(name)) is str}


def _stored_elsewhere(where: str) -> BadRequest:
    return BadRequest(
        f"{where}.file_id names a file that this model's provider does not have; send its bytes.",
        param=f"{where}.file_id",
    )
