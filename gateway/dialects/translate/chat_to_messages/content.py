"""Converts chat messages to Anthropic's system prompt and alternating turns of content blocks."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.dialects.translate.chat_to_messages.media import document, image
from gateway.errors import BadRequest

_ID = re.compile(r"[^A-Za-z0-9_-]")
_EPHEMERAL = {"type": "ephemeral"}
_THOUGHTS = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
"""Type of a thinking block → names of its fields. Anthropic requires that the client returns these fields exactly as
Anthropic sent them."""

Block = dict[str, Any]
Numbered = tuple[int, dict[str, Any]]
"""(Index of a message in the client's request, message)."""


def conversation(messages: list[Numbered]) -> tuple[str | list[Block], list[Block]]:
    """The system prompt (all system messages, in order) and the turns. Raises BadRequest with the location of
    unsupported content."""
    system: list[Block] = []
    turns: list[Block] = []
    followed = 0  # number of blocks in the system prompt when the last message of another role was read
    for index, message in messages:
        role, where = message["role"], f"messages[{index}]"
        if role in ("system", "developer"):
            system += _marked(message, _blocks(message.get("content"), where))
            continue
        followed = len(system)
        if role in ("tool", "function"):
            _append(turns, "user", [_result(message, where)])
        elif role == "assistant":
            _append(turns, "assistant", _assistant_blocks(message, where))
        else:
            _append(turns, "user", _marked(message, _blocks(message.get("content"), where)))
    # Anthropic needs at least one turn, and would continue the last turn if it is the assistant's
    if not turns or turns[-1]["role"] == "assistant":
        followed = followed if turns else 0
        _append(turns, "user", system[followed:])
        del system[followed:]
    _check_end(messages, turns)
    for turn in turns[1:]:
        if turn["role"] == "user":  # tool results must come first in a turn
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    return _plain_if_possible(system), [{**turn, "content": _plain_if_possible(turn["content"])} for turn in turns]


def plain_id(call_id: str) -> str:
    """The id of a call, with only the characters that Anthropic allows."""
    return _ID.sub("_", call_id)


def _append(turns: list[Block], role: str, blocks: list[Block]) -> None:
    """Add blocks as a turn, or to the last turn if it has the same role. Results of parallel calls must be in one
    turn.
    """
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": blocks})


def _check_end(messages: list[Numbered], turns: list[Block]) -> None:
    """Check the last message, and strip white space at the end of a last assistant turn. Raises BadRequest if an empty
    user message follows an assistant turn, which Anthropic would continue."""
    if not messages:
        raise BadRequest("messages contains no message for the model: add one.", param="messages")
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


def _assistant_blocks(message: Block, where: str) -> list[Block]:
    """The blocks of an assistant message, in the order in which models generate them."""
    if message.get("audio"):
        raise BadRequest(f"{where}.audio cannot be shown to this model.", param=f"{where}.audio")
    texts = _blocks(message.get("content"), where)
    if type(refused := message.get("refusal")) is str and refused.strip():
        texts.append({"type": "text", "text": refused})
    return [*_thoughts(message), *_marked(message, [*texts, *_uses(message, where)])]


def _thoughts(message: Block) -> list[Block]:
    """The thinking blocks that Anthropic signed. Anthropic rejects thinking without a signature, so `reasoning_content`
    is left out."""
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
    """The `blocks` of `message`. If the message has a cache mark, the mark is moved to the last block."""
    mark = message.get("cache_control")
    return [*blocks[:-1], {**blocks[-1], "cache_control": mark}] if mark and blocks else blocks


def _blocks(content: Any, where: str) -> list[Block]:
    """The content as blocks. Blank texts are left out, because Anthropic rejects them."""
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
        return part  # the block is in Anthropic's own format, or Anthropic will reject it
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
    use = {"type": "tool_use", "id": plain_id(call_id), "name": function["name"]}
    use["input"] = _input(function.get("arguments"), f"{where}.function.arguments")
    return {**use, "cache_control": call["cache_control"]} if call.get("cache_control") else use


def _input(arguments: Any, where: str) -> Any:
    """The arguments of a call as the client's original bytes. They are not parsed, because parsing could change long
    numbers."""
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
        "tool_use_id": plain_id(call_id),
        "content": content if type(content) is str else _plain_if_possible(_blocks(content, where)),
    }
    return {**result, "cache_control": message["cache_control"]} if message.get("cache_control") else result
