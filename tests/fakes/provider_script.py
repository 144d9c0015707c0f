"""What the scripted provider shall do next: steps as values, and the markers that write them into a prompt."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal

UsageClaim = Literal["true", "absent", "zero", "wrong", "negative", "nonsense"]
Ending = Literal["", "fin", "rst", "hang"]


@dataclass(frozen=True)
class Reply:
    """An answer; every field beyond the text is a way to make it odd."""

    text: str | None = None
    """None: a short echo of the last user message."""
    tokens: int | None = None
    """Exactly so many tokens `t0 t1 …` instead of a text."""
    finish: str = "stop"
    """OpenAI's word; `length` is set by itself when max_tokens cuts the answer."""
    reasoning: str = ""
    """Thinking shown before the text, one token per word."""
    tool: str = ""
    """Call this tool instead of answering (with the echo as its argument `query`)."""
    blocks: tuple[dict[str, Any], ...] = ()
    """Anthropic's content blocks instead of all this; the `input` of a call may be JSON as it is to be written."""
    message: dict[str, Any] = field(default_factory=dict)
    """A message of OpenAI's chat instead of all this, such as one with several calls, which then come interleaved."""
    stop_sequence: str = ""
    """What Anthropic says it stopped at."""
    padded: bool = False
    """Anthropic's events end in blanks of varying number, as the real ones do."""
    logprob: float = -0.05
    """Of every token, when log-probabilities are asked for."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    usage: UsageClaim = "true"
    delay_s: float = 0.0
    """Before the response's head."""
    prefill_s: float = 0.0
    """Between the head and the first body byte."""
    drip_s: float = 0.0
    """Before every event of a stream."""
    cut: Ending = ""
    """How the connection ends after `after` content events (a plain body: after half of it)."""
    after: int = 0
    inside: bool = False
    """Cut in the middle of the next event's HTTP chunk."""
    error_event: str = ""
    """Message of an error event after `after` content events, which ends the stream."""
    done: bool = True
    """False: neither `[DONE]` nor `message_stop`."""
    huge: int = 0
    """Bytes of padding inside the first content event, on one line."""
    crlf: bool = False
    split: bool = False
    """Every byte above 127 is a write (and an HTTP chunk) of its own, so UTF-8 is torn apart."""
    framing: Literal["default", "eof"] = "default"
    """eof: no length and no chunks; the close of the connection ends the body."""
    keep_alive: bool = True


@dataclass(frozen=True)
class Fail:
    """Anything but an answer."""

    status: int = 500
    message: str = "scripted failure"
    code: str = ""
    param: str = ""
    retry_after: str = ""
    body: Literal["error", "garbage", "html", "empty", "truncated"] = "error"
    delay_s: float = 0.0
    cut: Ending = ""
    """Instead of any response byte."""


@dataclass(frozen=True)
class Raw:
    """Bytes as given, with pauses (seconds) between them; then keep the connection, end it or hang."""

    pieces: tuple[bytes | float, ...] = ()
    then: Ending = ""


Step = Reply | Fail | Raw

_MARKER = re.compile(r"\[\[([a-z_]+)((?:\s+[a-z_]+=[^\s\]]+)*)\s*\]\]")


def marked(*texts: str) -> Step | None:
    """The step written into a model name or prompt: `[[fail status=429 retry_after=2]]`, `[[reply tokens=9 cut=rst]]`.

    Raises ValueError for a marker that names no such step or field, so that a typo never passes for an answer.
    """
    for text in texts:
        if "[[" not in text:
            continue
        if found := _MARKER.search(text):
            given = dict(pair.split("=", 1) for pair in found[2].split())
            if found[1] == "reply":
                return Reply(**_arguments(Reply, given))
            if found[1] == "fail":
                return Fail(**_arguments(Fail, given))
            raise ValueError(f"a marker begins with reply or fail, not {found[1]!r}")
    return None


def _arguments(kind: type[Reply] | type[Fail], given: dict[str, str]) -> dict[str, Any]:
    types = {field.name: str(field.type) for field in fields(kind)}
    if unknown := given.keys() - types.keys():
        raise ValueError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    return {name: _convert(types[name], value) for name, value in given.items()}


def _convert(type_name: str, value: str) -> Any:
    if type_name == "bool":
        return value in ("1", "true", "yes")
    if type_name.startswith("int"):
        return int(value)
    return float(value) if type_name == "float" else value.replace("+", " ")
