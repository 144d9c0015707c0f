"""Writes chat messages as Anthropic's system prompt and alternating turns of content blocks."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.dialects.translate.chat_to_messages.media import document, image
from gateway.errors import BadRequest

_ID = re.compile(r"[^A-Za-z0-9_-]")
_EPHEMERAL = {"type": "ephemeral"}
_THOUGHTS = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
"""What blocks of thought consist of; they have to come back exactly as they were given."""

Block = dict[str, Any]
Numbered = tuple[int, dict[str, Any]]
"""A message and its place in the client's request."""


def conversation(messages: list[Numbered]) -> tuple[str | list[Block], list[Block]]:
    """System prompt (every system message, in order) and turns. Raises BadRequest naming what cannot be said."""
    system: list[Block] = []
    turns: list[Block] = []
    heard = 0  # blocks of the system prompt that somebody has spoken after
    for index, message in messages:
        role, where = message["role"], f"messages[{index}]"
        if role in ("system", "developer"):
            system += _marked(message, _blocks(message.get("content"), where))
            continue
        heard = len(system)
        if role in ("tool", "function"):
            _append(turns, "user", [_result(message, where)])
        elif role == "assistant":
            _append(turns, "assistant", _said(message, where))
        else:
            _append(turns, "user", _marked(message, _blocks(message.get("content"), where)))
    if not turns or turns[-1]["role"] == "assistant":  # Anthropic wants a turn, and would go on with an assistant's.
        heard = heard if turns else 0
        _append(turns, "user", system[heard:])
        del system[heard:]
    _check_end(messages, turns)
    for turn in turns[1:]:
        if turn["role"] == "user":  # Results come first, whatever was said before they were there.
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    return _plain_if_possible(system), [{**turn, "content": _plain_if_possible(turn["content"])} for turn in turns]


def _append(turns: list[Block], role: str, blocks: list[Block]) -> None:
    """Neighbours of one role become one turn: results of parallel calls must arrive together."""
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": blocks})


def _check_end(messages: list[Numbered], turns: list[Block]) -> None:
    """The last word counts: nothing said by the user is no reason to go on speaking, and what the answer is to begin
    with may not end in white space."""
    if not messages:
        raise BadRequest("messages has nothing that is said to this model: add a message.", param="messages")
    index, last = messages[-1]
    if not turns or (last["role"] == "user" and turns[-1]["role"] == "assistant"):
        where = f"messages[{index}].content"
        raise BadRequest(f"{where} is empty, which this model does not take.", param=where)
    block = turns[-1]["content"][-1]
    if turns[-1]["role"] == "assistant" and block["type"] == "text":
        turns[-1]["content"][-1] = {**block, "text": block["text"].rstrip()}


def _plain_if_possible(blocks: list[Block]) -> str | list[Block]:
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        text: str = blocks[0]["text"]
        return text
    return blocks


def _said(message: Block, where: str) -> list[Block]:
    """What an assistant said, in the order in which models do."""
    if message.get("audio"):
        raise BadRequest(f"{where}.audio cannot be shown to this model.", param=f"{where}.audio")
    texts = _blocks(message.get("content"), where)
    if type(refused := message.get("refusal")) is str and refused.strip():
        texts.append({"type": "text", "text": refused})
    return [*_thoughts(message), *_marked(message, [*texts, *_uses(message, where)])]


def _thoughts(message: Block) -> list[Block]:
    """Only those that Anthropic signed: it refuses all others, and `reasoning_content` is signed by nobody."""
    blocks = message.get("thinking_blocks")
    known = [_thought(block) for block in blocks if type(block) is dict] if type(blocks) is list else []
    return [block for block in known if block]


def _thought(block: Block) -> Block | None:
    kind = block.get("type")
    fields = _THOUGHTS.get(kind) if type(kind) is str else None
    if fields is None or not block.get(fields[-1]):
        return None
    return {"type": block["type"], **{name: block.get(name) or "" for name in fields}}


def _marked(message: Block, blocks: list[Block]) -> list[Block]:
    """The message's own cache mark belongs to its last block."""
    mark = message.get("cache_control")
    return [*blocks[:-1], {**blocks[-1], "cache_control": mark}] if mark and blocks else blocks


def _blocks(content: Any, where: str) -> list[Block]:
    """Texts without a visible character are left out: Anthropic refuses them."""
    if type(content) is str:
        return [{"type": "text", "text": content}] if content.strip() else []
    blocks = [_block(part, f"{where}.content[{number}]") for number, part in enumerate(content or ())]
    return [block for block in blocks if block and (block["type"] != "text" or block["text"].strip())]


def _block(part: Block, where: str) -> Block | None:
    kind = part["type"]
    if kind in ("text", "refusal"):
        block = _text(part.get(kind) or "", f"{where}.{kind}")
    elif kind == "image_url":
        block = image(part.get("image_url"), where)
    elif kind == "file":
        block = document(part.get("file"), where)
    elif kind == "input_audio":
        raise BadRequest(f"{where} is audio, which this model does not take.", param=where)
    elif kind in _THOUGHTS:
        return _thought(part)
    else:
        return part  # One of Anthropic's own, or one that its API will name in its refusal.
    if mark := part.get("cache_control") or (part.get("prompt_cache_breakpoint") and _EPHEMERAL):
        block["cache_control"] = mark
    return block


def _text(text: Any, where: str) -> Block:
    if type(text) is not str:
        raise BadRequest(f"{where} must be a string.", param=where)
    return {"type": "text", "text": text}


def _uses(message: Block, where: str) -> list[Block]:
    uses = [
        _use(call, call.get("id"), call.get("function"), f"{where}.tool_calls[{number}]")
        for number, call in enumerate(message.get("tool_calls") or ())
    ]
    if type(function := message.get("function_call")) is dict:
        uses.append(_use(message, function.get("name"), function, f"{where}.function_call"))
    return uses


def _use(call: Block, call_id: Any, function: Any, where: str) -> Block:
    if call.get("type") == "custom":
        raise BadRequest(f"{where} calls a custom tool; this model only knows functions.", param=where)
    if type(function) is not dict or type(function.get("name")) is not str or type(call_id) is not str:
        raise BadRequest(f"{where} must be a function call with an id and a name.", param=where)
    use = {"type": "tool_use", "id": _ID.sub("_", call_id), "name": function["name"]}
    use["input"] = _input(function.get("arguments"), f"{where}.function.arguments")
    return {**use, "cache_control": call["cache_control"]} if call.get("cache_control") else use


def _input(arguments: Any, where: str) -> Any:
    """Arguments as they were written: read and written again, a long number would become another."""
    text = "{}" if arguments is None else arguments
    if type(text) is str:
        written = text.strip().encode() or b"{}"
        try:
            if type(orjson.loads(written)) is dict:
                return orjson.Fragment(written)
        except orjson.JSONDecodeError:
            pass
    raise BadRequest(f"{where} must be a JSON object written as a string.", param=where)


def _result(message: Block, where: str) -> Block:
    call_id = message.get("tool_call_id") or message.get("name")
    if type(call_id) is not str:
        raise BadRequest(f"{where}.tool_call_id must be a string.", param=f"{where}.tool_call_id")
    content = message.get("content")
    result = {
        "type": "tool_result",
        "tool_use_id": _ID.sub("_", call_id),
        "content": content if type(content) is str else _plain_if_possible(_blocks(content, where)),
    }
    return {**result, "cache_control": message["cache_control"]} if message.get("cache_control") else result
