"""Splits a request body into the blocks that a provider's prompt cache compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from gateway.domain.prompt_cache import LONG_S, SHORT_S

IMAGE_TOKENS = 1500
_MARK = "cache_control"
_DIGEST_BYTES = 16
_UNSEEN = frozenset({"type", "id", "tool_use_id", "tool_call_id", "signature", "is_error", "role"})
"""Names of fields that add few tokens or none, whatever the fields contain."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a prompt. The numbers also cover all blocks before this block."""

    digest: bytes
    """Digest of the prompt up to the end of this block. The digest also depends on the form of the prompt: a string,
    and an array that contains the same text, are different blocks."""
    tokens: int
    """Tokens from the beginning of the prompt to the end of this block."""
    ttl_s: float = 0.0
    """Lifetime of the block's cache mark in seconds; 0 if the block has no cache mark."""


class BlockReader:
    """Reads request bodies in Anthropic's dialect and in OpenAI's chat dialect. The tokens of a
    block are counted only once, and kept for later blocks that are equal."""

    def __init__(self, count: Callable[[str], int], factor: float = 1.0) -> None:
        """`count`: counts the tokens of a text. `factor`: the tokens by the model's own tokenizer, divided by the
        tokens that `count` returns."""
        self._count, self._factor = count, factor
        self._known: dict[bytes, int] = {}

    def read(self, body: dict[str, Any], hidden_tokens: int = 0) -> list[Block]:
        """The blocks of a body. `hidden_tokens`: tokens at the beginning of the prompt that are not in `body`."""
        found, digest, tokens = [], b"", hidden_tokens
        if hidden_tokens:
            digest = b"hidden"
            found.append(Block(digest, tokens))
        for where, block, ttl_s in _pieces(body):
            written = orjson.dumps(block)
            own = blake2b(written, digest_size=_DIGEST_BYTES).digest()
            if (size := self._known.get(own)) is None:
                size = self._known[own] = round(self._size(block) * self._factor)
            tokens += size
            digest = blake2b(digest + where + own, digest_size=_DIGEST_BYTES).digest()
            found.append(Block(digest, tokens, ttl_s))
        return found

    def _size(self, block: Any) -> int:
        texts: list[str] = []
        images = _texts(block, texts)
        return self._count("\n".join(texts)) + images * IMAGE_TOKENS


def _pieces(body: dict[str, Any]) -> Iterator[tuple[bytes, Any, float]]:
    """Yield three values for each block, in the provider's order: the block's path in the body, the block without its
    cache mark, and the lifetime of the mark in seconds."""
    for tool in body.get("tools") or ():
        yield b"tool", *_unmarked(tool)
    system = body.get("system") or ()
    for block in [system] if type(system) is str else system:
        yield b"system", *_unmarked(block)
    for message in body["messages"]:
        where = b"message:" + str(message["role"]).encode()
        content = message.get("content")
        rest = {name: value for name, value in message.items() if name not in ("role", "content")}
        if rest:  # the tool calls of a chat message, or the id of the call to which the message is the result
            yield where, *_unmarked(rest)
            where = b""
        for block in content if type(content) is list else [content] if content else ():
            yield where, *_unmarked(block)
            where = b""


def _unmarked(block: Any) -> tuple[Any, float]:
    if type(block) is not dict or _MARK not in block:
        return block, 0.0
    mark = block[_MARK]
    ttl_s = (LONG_S if mark.get("ttl") == "1h" else SHORT_S) if type(mark) is dict else 0.0
    return {name: value for name, value in block.items() if name != _MARK}, ttl_s


def _texts(node: Any, found: list[str]) -> int:
    """Append the texts of a block to `found`. Returns the number of images in the block."""
    if type(node) is str:
        found.append(node)
        return 0
    if type(node) is list:
        return sum(_texts(each, found) for each in node)
    if type(node) is not dict:
        return 0
    if node.get("type") in ("image", "image_url"):
        return 1
    if "input_schema" in node or "parameters" in node or node.get("type") == "tool_use":
        found.append(orjson.dumps({name: value for name, value in node.items() if name not in _UNSEEN}).decode())
        return 0
    return sum(_texts(value, found) for name, value in node.items() if name not in _UNSEEN)
