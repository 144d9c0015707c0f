"""Orders the lines of a batch so that prompts with the same beginning are sent one after the other. This reduces the
cost.

For a few minutes, a provider keeps the beginning of each prompt in a cache. Another prompt with the same beginning is
then cheaper.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import orjson

from gateway.batches.forms import Form, Line
from gateway.batches.lines import numbered

BLOCK = 512
"""Prompts are compared in blocks of this many bytes: about 128 tokens, the unit in which providers cache."""
SHARED = 8
"""Minimum number of equal blocks at the beginning of two prompts, about 1024 tokens. Providers do not cache less."""
PAGE = 64
"""Maximum number of lines in memory. The next line to send is chosen among these lines."""
_DIGEST = 8


@dataclass(frozen=True, slots=True)
class QueuedLine:
    """A line's position in the file, and the line's group."""

    number: int
    start: int
    length: int
    group: bytes
    """Digest of the model and the first `SHARED` blocks of the prompt; empty if the prompt has fewer blocks."""


def placed(path: Path, form: Form, done: set[str]) -> list[QueuedLine]:
    """The lines without a result, sorted by model, then by the beginning of the prompt. `done`: ids of the lines that
    have a result. This blocks."""
    found: list[tuple[str, bytes, QueuedLine]] = []
    start = 0
    for number, raw in numbered(path):
        if raw.strip():
            line = form.read(number, raw)
            if line.custom_id not in done:
                model, begins = str(line.fields.get("model")), beginning(line.fields, form.prompt)
                found.append((model, begins, QueuedLine(number, start, len(raw), _group(model, begins))))
        start += len(raw)
    found.sort(key=lambda each: each[:2])  # a stable sort, so that lines with equal beginnings keep the client's order
    return [place for _, _, place in found]


def beginning(fields: dict[str, Any], prompt: tuple[str, ...]) -> bytes:
    """The digests of all whole blocks of a prompt, in order. If prompts are sorted by these digests, prompts with
    equal beginnings are next to each other. `prompt`: names of the fields that form the prompt.
    """
    if not prompt:
        return b""
    try:
        text = orjson.dumps([fields.get(name) for name in prompt])
    except orjson.JSONEncodeError:  # nested too deep to be serialised; its result will contain the error
        return b""
    whole = len(text) - len(text) % BLOCK
    blocks = (text[start : start + BLOCK] for start in range(0, whole, BLOCK))
    return b"".join(blake2b(block, digest_size=_DIGEST).digest() for block in blocks)


def _group(model: str, begins: bytes) -> bytes:
    shared = begins[: SHARED * _DIGEST]
    if len(shared) < SHARED * _DIGEST:
        return b""
    return blake2b(shared, key=model.encode()[:64], digest_size=16).digest()


class Queue:
    """Returns the lines of a file. Lines whose prompts have the same beginning follow one another. They wait until
    the first of them is done, because then the provider's cache contains the beginning.
    """

    def __init__(self, path: Path, form: Form, done: set[str]) -> None:
        """Read and order the lines of the file. `done`: ids of the lines with a result. This blocks. Raises OSError."""
        self._form = form
        self._far = iter(placed(path, form, done))
        self._near: deque[tuple[bytes, Line]] = deque()
        self._leading: set[bytes] = set()
        self._led: set[bytes] = set()
        self._changed = asyncio.Condition()
        self._file = path.open("rb")
        self._whole = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    async def take(self) -> tuple[bytes, Line] | None:
        """The next line with its group; None if no line is left. When the line is done, the caller must call `leave`
        with the group."""
        async with self._changed:
            while True:
                if len(self._near) < PAGE // 2 and not self._whole:
                    await asyncio.to_thread(self._fill)
                for at, (group, line) in enumerate(self._near):
                    if group not in self._leading:
                        del self._near[at]
                        if group and group not in self._led:
                            self._leading.add(group)
                        return group, line
                if not self._near:
                    return None
                await self._changed.wait()

    async def leave(self, group: bytes) -> None:
        """Record that a line of the group is done, so that the next lines of the group may be sent."""
        if group in self._leading:
            async with self._changed:
                self._leading.discard(group)
                self._led.add(group)
                self._changed.notify_all()

    def _fill(self) -> None:
        """Read further lines into memory, up to `PAGE` lines. This blocks."""
        for place in self._far:
            raw = os.pread(self._file.fileno(), place.length, place.start)
            self._near.append((place.group, self._form.read(place.number, raw)))
            if len(self._near) >= PAGE:
                return
        self._whole = True


def undone(path: Path, form: Form, done: set[str]) -> Iterator[Line]:
    """Yield the lines without a result, in the order of the file. This blocks."""
    for number, raw in numbered(path):
        if raw.strip():
            line = form.read(number, raw)
            if line.custom_id not in done:
                yield line
