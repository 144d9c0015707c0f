"""What is asked and which answer is right: text and usage of an answer follow from its question's number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import orjson

Kind = Literal["plain", "burst", "paced", "calls"]
"""A plain answer; a stream whose chunks come at once; one whose chunks come one by one; as burst, then a tool call."""
Dialect = Literal["chat", "messages", "responses"]

MARK = re.compile(rb"\[\[q(\d{8}) (plain|burst|paced|calls) (\d{3}) (\d{5})\]\]")
"""Number, kind, chunks, base of the input tokens: all that the upstream reads of a question."""
ANSWER_CHARACTERS = 1000
PACE_S = 0.005
_FILLER = "The scale was level, the ledger closed, and nobody in the harbour office asked for more light that day. "
_PIECE = re.compile(rb'"content": ?"( \d{8}\.\d{3})(?:@(\d{19}))?"')
STAMP = re.compile(rb"@(\d{19})\"")
_FINISHED = re.compile(rb'"finish_reason": ?"stop"')
_USAGE = re.compile(rb'"prompt_tokens": ?(\d+)[^}]*?"completion_tokens": ?(\d+)|'
                    rb'"completion_tokens": ?(\d+)[^}]*?"prompt_tokens": ?(\d+)')  # fmt: skip


class Tokens(NamedTuple):
    input: int
    output: int


def tokens_of(number: int, base: int) -> Tokens:
    """What the upstream says it took; distinct enough that mixed-up answers show in the sums."""
    return Tokens(base + number % 13, 200 + number % 17)


def text_of(number: int) -> str:
    """A plain answer's text: about 1 KB that belongs to this question alone."""
    begin = f"[{number:08d}] "
    return begin + (_FILLER * 10)[: ANSWER_CHARACTERS - len(begin)]


def piece_of(number: int, index: int) -> str:
    """A streamed chunk's text; a paced one ends with `@` and the nanosecond at which it was sent."""
    return f" {number:08d}.{index:03d}"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the questions of a cell look."""

    kind: Kind = "plain"
    bytes: int = 1024
    """Of the prompt's text."""
    chunks: int = 100
    known: int = 0
    """Not 0: the user says one of so many texts, after a system prompt of its own: new to the cache, known as text."""
    short: bool = False
    """The prompt's bulk is a system prompt that all share, and the user says something short and new."""
    temperature: float | None = None
    turns: int = 0
    """Not 0: sessions of a coding agent with so many requests each; `bytes` is the mean of their bodies."""
    at_a_time: int = 32
    """Sessions that are in progress at any time, each at another point of its course."""
    dialect: Dialect = "chat"
    """Of sessions; all else is chat."""

    @property
    def base_tokens(self) -> int:
        return self.bytes // 4


class Asked(Protocol):
    """The bodies of a shape."""

    def body(self, number: int) -> bytes:
        """The body of question `number`."""
        ...


class Questions:
    """Bodies of one shape for one model name, cheap to make: everything but the number is ready."""

    def __init__(self, shape: Shape, model: str) -> None:
        self.shape = shape
        self._ends = [self._split(shape, model, known) for known in range(max(1, shape.known))]

    def body(self, number: int) -> bytes:
        before, after = self._ends[number % len(self._ends)]
        return b"%b%08d%b" % (before, number, after)

    @staticmethod
    def _split(shape: Shape, model: str, known: int) -> tuple[bytes, bytes]:
        mark = f"[[q{'9' * 8} {shape.kind} {shape.chunks if shape.kind != 'plain' else 0:03d} {shape.base_tokens:05d}]]"
        filler = _FILLER * (shape.bytes // len(_FILLER) + 1)
        messages = [{"role": "user", "content": f"{mark} {filler[: shape.bytes - len(mark) - 1]}"}]
        if shape.known:
            asked = f"What does rule {known} of the harbour office say about lamps on pier {known * 7}?"
            messages = [
                {"role": "system", "content": f"{mark} {filler[: shape.bytes - len(mark) - 1 - len(asked)]}"},
                {"role": "user", "content": asked},
            ]
        elif shape.short:
            asked = f"{mark} What does it say about the lamps on the pier?"
            system = filler[: shape.bytes - len(asked)]
            messages = [{"role": "system", "content": system}, {"role": "user", "content": asked}]
        body: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": 512}
        if shape.temperature is not None:
            body["temperature"] = shape.temperature
        if shape.kind != "plain":
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        before, _, after = orjson.dumps(body).partition(b"9" * 8)
        return before, after


def fault_in_plain(body: bytes, number: int, base: int) -> str:
    """Why `body` is not the right answer to question `number`; empty when it is."""
    try:
        answer = orjson.loads(body)
        choice, usage = answer["choices"][0], answer["usage"]
        told = Tokens(usage["prompt_tokens"], usage["completion_tokens"])
        text, finish = choice["message"]["content"], choice["finish_reason"]
    except (ValueError, KeyError, IndexError, TypeError):
        return f"not a completion: {body[:200]!r}"
    if text != text_of(number):
        return f"another question's text: {str(text)[:60]!r} for {number}"
    if told != tokens_of(number, base):
        return f"usage is {told}, not {tokens_of(number, base)}"
    return "" if finish == "stop" else f"finish_reason is {finish!r}"


def fault_in_stream(body: bytes, number: int, base: int, chunks: int) -> str:
    """Why the events in `body` are not the right answer to question `number`; empty when they are."""
    pieces = [piece.decode() for piece, _ in _PIECE.findall(body)]
    if pieces != [piece_of(number, index) for index in range(chunks)]:
        return f"{len(pieces)} of {chunks} chunks, or another question's: {pieces[:2]} for {number}"
    if not body.rstrip().endswith(b"data: [DONE]"):
        return f"no terminating event: {body[-80:]!r}"
    if len(_FINISHED.findall(body)) != 1:
        return "finish_reason is not told once"
    usage = _USAGE.search(body)
    told = None if usage is None else Tokens(int(usage[1] or usage[4]), int(usage[2] or usage[3]))
    if told != tokens_of(number, base):
        return f"usage is {told}, not {tokens_of(number, base)}"
    return ""
