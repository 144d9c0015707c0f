"""Adds cache marks to a request body. Anthropic's prompt cache stores the prompt up to each mark. The client's own
marks stay."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from gateway.dialects.anthropic_messages.turns import THINKING
from gateway.domain.prompt_cache import MOST_MARKS, CacheMarks

Block = dict[str, Any]
Place = tuple[int, int]
"""The position of a block: (part of the prompt, index of the block in this part). The parts are 0: tools, 1: system, 2:
messages. Sorted places are in the order in which Anthropic caches."""
_MARK = "cache_control"
_TOOLS, _SYSTEM, _MESSAGES = range(3)
_NONE: frozenset[int] = frozenset()


def with_marks(body: Block, marks: CacheMarks) -> Block:
    """Add cache marks to a request. Returns the fields of `body` that change, with new values. Sets `marks.blocks` and
    `marks.lives_long`. The client's own marks stay."""
    parts = _parts(body)
    marks.blocks = sum(_counted(block) for _, blocks in parts[2:] for block in blocks)
    theirs = dict(_marked(parts))
    if marks.remove:
        chosen: dict[Place, str] = {}
    else:
        chosen = _lifetimes(theirs, _chosen(parts, theirs, marks))
        marks.lives_long = bool(chosen) and max(chosen) == _newest(parts) and chosen[max(chosen)] == "1h"
    return _written(body, parts, theirs, chosen, marks.remove)


Part = tuple[int, list[Any]]
"""A list of blocks, with the index of its first block within the tools, the system prompt or all messages: (index,
blocks)."""


def _parts(body: Block) -> list[Part]:
    """The parts of the prompt: the tools, the system prompt, and each message."""
    system = body.get("system") or []
    tools = body.get("tools") or []
    parts: list[Part] = [(0, tools), (0, [_text(system)] if type(system) is str else system)]
    first = 0
    for message in body["messages"]:
        content = message["content"]
        blocks = [_text(content)] if type(content) is str else content or []
        parts.append((first, blocks))
        first += len(blocks)
    return parts


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _marked(parts: list[Part]) -> Iterator[tuple[Place, str]]:
    """Yield the place and the lifetime of each mark that the client has set. The lifetime is empty if the client did
    not set it."""
    for number, (first, blocks) in enumerate(parts):
        for at, block in enumerate(blocks):
            if type(block) is not dict:
                continue
            if type(mark := block.get(_MARK)) is dict:
                yield (min(number, _MESSAGES), first + at), mark.get("ttl") or ""
            elif block.get("type") == "tool_result" and type(inner := block.get("content")) is list:
                for each in inner:
                    if type(each) is dict and type(mark := each.get(_MARK)) is dict:
                        yield (min(number, _MESSAGES), first + at), mark.get("ttl") or "5m"


def _chosen(parts: list[Part], theirs: dict[Place, str], marks: CacheMarks) -> dict[Place, str]:
    """The places and lifetimes of the marks to add. `theirs`: the client's marks, which count towards the maximum
    number of marks."""
    wanted: list[tuple[Place | None, str]] = []
    if marks.newest:
        wanted.append((_newest(parts), marks.newest))
    wanted += [(_before(parts, blocks), lifetime) for blocks, lifetime in marks.earlier]
    if marks.fixed:
        fixed = [place for place in (_end(parts, _SYSTEM), _end(parts, _TOOLS)) if place is not None]
        wanted += [(place, "5m") for place in fixed] or [(_end(parts, _MESSAGES), "5m")]
    added: dict[Place, str] = {}
    taken = set(theirs)
    for place, lifetime in wanted:
        if place is not None and place not in added and (place in taken or len(taken) < MOST_MARKS):
            taken.add(place)
            added[place] = lifetime
    return added


def _lifetimes(theirs: dict[Place, str], added: dict[Place, str]) -> dict[Place, str]:
    """The lifetime of every mark. No mark may live longer than a mark before it.

    `theirs`: the client's marks, whose lifetimes are not changed. `added`: the gateway's marks.
    """
    chosen, short = {}, False
    for place in sorted({*theirs, *added}):
        chosen[place] = theirs.get(place) or ("5m" if short else added.get(place, "5m"))
        short = short or theirs.get(place) == "5m"
    last = max((place for place, lifetime in chosen.items() if lifetime == "1h"), default=None)
    for place in chosen:
        if last is not None and place < last and not theirs.get(place):
            chosen[place] = "1h"
    return chosen


def _newest(parts: list[Part]) -> Place | None:
    return _last_markable(parts, len(parts) - 1, len(parts[-1][1]))


def _before(parts: list[Part], count: int) -> Place | None:
    """The last block that can be marked, among the first `count` blocks of the messages; None if there is none."""
    for number in range(_MESSAGES, len(parts)):
        for at, block in enumerate(parts[number][1], 1):
            count -= _counted(block)
            if count == 0:
                return _last_markable(parts, number, at)
    return _newest(parts)


def _last_markable(parts: list[Part], number: int, most: int) -> Place | None:
    """The last block that can be marked. Only the first `most` blocks of the part with index `number`, and the messages
    before this part, are searched. None if none of these blocks can be marked."""
    for each in range(number, _MESSAGES - 1, -1):
        first, blocks = parts[each]
        for at in range((most if each == number else len(blocks)) - 1, -1, -1):
            if _markable(blocks[at]):
                return _MESSAGES, first + at
    return None


def _counted(block: Any) -> bool:
    return type(block) is not dict or block.get("type") not in THINKING


def _end(parts: list[Part], number: int) -> Place | None:
    blocks = parts[number][1]
    return (number, len(blocks) - 1) if blocks and _markable(blocks[-1]) else None


def _markable(block: Any) -> bool:
    if type(block) is not dict or block.get("type") in THINKING:
        return False
    return block.get("type") != "text" or bool(str(block.get("text")).strip())


def _written(body: Block, parts: list[Part], theirs: dict[Place, str], chosen: dict[Place, str], remove: bool) -> Block:
    changed = {place for place, lifetime in chosen.items() if (theirs.get(place, "-") or "5m") != lifetime}
    inside: dict[int, set[int]] = {}
    for kind, at in {*changed, *theirs} if remove else changed:
        number = _part_of(parts, kind, at)
        inside.setdefault(number, set()).add(at - parts[number][0])
    fields: Block = {}
    for kind, name in ((_TOOLS, "tools"), (_SYSTEM, "system")):
        if kind in inside:
            fields[name] = _blocks(parts[kind], kind, inside[kind], chosen)
    messages = body["messages"]
    written = [
        {**message, "content": _blocks(parts[number], _MESSAGES, inside.get(number, _NONE), chosen)}
        if number in inside or (not remove and _is_text(message))
        else message
        for number, message in enumerate(messages, _MESSAGES)
    ]
    if any(new is not old for new, old in zip(written, messages, strict=True)):
        fields["messages"] = written
    return fields


def _is_text(message: Block) -> bool:
    return type(message["content"]) is str and message.get("role") == "user" and bool(message["content"].strip())


def _part_of(parts: list[Part], kind: int, at: int) -> int:
    if kind != _MESSAGES:
        return kind
    return next(n for n in range(len(parts) - 1, _MESSAGES - 1, -1) if parts[n][0] <= at and parts[n][1])


def _blocks(part: Part, kind: int, inside: Set[int], chosen: dict[Place, str]) -> list[Any]:
    first, blocks = part
    return [_block(block, chosen.get((kind, first + at))) if at in inside else block for at, block in enumerate(blocks)]


def _block(block: Block, lifetime: str | None) -> Block:
    if lifetime is not None:
        theirs = block.get(_MARK) or {"type": "ephemeral"}
        return {**block, _MARK: {**theirs, "ttl": "1h"} if lifetime == "1h" else theirs}
    plain = {name: value for name, value in block.items() if name != _MARK}
    if type(inner := plain.get("content")) is list:
        plain["content"] = [_block(each, None) if type(each) is dict else each for each in inner]
    return plain
