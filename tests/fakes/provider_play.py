"""A step and a request become the bytes, pauses and endings that go out on the scripted provider's connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from tests.fakes.provider_answer import Event, Spoken
from tests.fakes.provider_script import Ending, Fail, Raw, Reply

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    429: b"Too Many Requests",
}
_TORN = re.compile(rb"[\x00-\x7f]+|[\x80-\xff]")
_BREATH_S = 0.005
"""Long enough for the other side to read what was written, so that a tear or a reset is seen as one."""

HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502</h1><hr>nginx</body></html>\n"


@dataclass(frozen=True)
class Write:
    data: bytes
    text: str = ""
    tokens: int = 0
    content: bool = False


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class End:
    """What becomes of the connection; "" keeps it. `whole`: the answer is all there."""

    how: Ending = ""
    whole: bool = True


Action = Write | Pause | End


def head(status: int, content_type: str, *more: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d %b" % (status, _REASONS.get(status, b"Scripted")), b"content-type: " + content_type.encode()]
    return b"\r\n".join([*lines, b"x-request-id: req_scripted", *more]) + b"\r\n\r\n"


def body_head(status: int, content_type: str, body: bytes, *more: bytes) -> bytes:
    return head(status, content_type, b"content-length: %d" % len(body), *more)


def play_raw(step: Raw) -> Iterator[Action]:
    for piece in step.pieces:
        yield Pause(piece) if isinstance(piece, float) else Write(piece)
    yield from _cut(step.then) if step.then else (End(),)


def play_failure(step: Fail, wire: ModuleType, stream: bool) -> Iterator[Action]:
    if step.delay_s:
        yield Pause(step.delay_s)
    if step.cut:
        yield from _cut(step.cut)
        return
    body, content_type = _failure_body(step, wire, stream)
    more = [b"retry-after: " + step.retry_after.encode()] if step.retry_after else []
    yield Write(body_head(step.status, content_type, body, *more) + body)
    yield End(whole=False)


def _failure_body(step: Fail, wire: ModuleType, stream: bool) -> tuple[bytes, str]:
    kind = "text/event-stream" if stream and step.status == 200 else "application/json"
    match step.body:
        case "html":
            return HTML, "text/html"
        case "garbage":
            return b"\x00\x1f\xff not what you asked for {{{", kind
        case "empty":
            return b"", kind
        case "truncated":
            body: bytes = wire.error(step)
            return body[: len(body) // 2], kind
        case _:
            return wire.error(step), kind


def play_plain(spoken: Spoken, wire: ModuleType) -> Iterator[Action]:
    told = Write(wire.plain(spoken), spoken.text, spoken.usage.all_output, True)
    return play_body(spoken.reply, told, "application/json")


def play_body(reply: Reply, told: Write, content_type: str) -> Iterator[Action]:
    """`told`: the body, and what it says."""
    body = told.data
    if reply.delay_s:
        yield Pause(reply.delay_s)
    close = () if reply.keep_alive and reply.framing != "eof" else (b"connection: close",)
    length = () if reply.framing == "eof" else (b"content-length: %d" % len(body),)
    start = head(200, content_type, *length, *close)
    if reply.cut:
        yield Write(start + body[: len(body) // 2])
        yield from _cut(reply.cut)
    elif reply.prefill_s:
        yield Write(start)
        yield Pause(reply.prefill_s)
        yield told
    else:
        yield Write(start + body, told.text, told.tokens, True)
    yield End("fin" if close else "")


def play_stream(spoken: Spoken, wire: ModuleType) -> Iterator[Action]:
    reply = spoken.reply
    if reply.delay_s:
        yield Pause(reply.delay_s)
    close = () if reply.keep_alive and reply.framing != "eof" else (b"connection: close",)
    coding = () if reply.framing == "eof" else (b"transfer-encoding: chunked",)
    yield Write(head(200, "text/event-stream", b"cache-control: no-cache", *coding, *close))
    if reply.prefill_s:
        yield Pause(reply.prefill_s)
    contents = 0
    for event in wire.events(spoken):
        if reply.drip_s:
            yield Pause(reply.drip_s)
        if contents == reply.after and (reply.cut or reply.error_event) and (event.content or contents):
            yield from _break_off(reply, event, wire)
            return
        contents += event.content
        yield from _send(reply, event)
    if coding:
        yield Write(b"0\r\n\r\n")
    yield End("fin" if close else "")


def _send(reply: Reply, event: Event) -> Iterator[Action]:
    data = event.data.replace(b"\n", b"\r\n") if reply.crlf else event.data
    if not reply.split:
        yield Write(_chunk(reply, data), event.text, event.tokens, event.content)
        return
    parts = _TORN.findall(data)
    for part in parts[:-1]:
        yield Write(_chunk(reply, part))
        yield Pause(_BREATH_S)
    yield Write(_chunk(reply, parts[-1]), event.text, event.tokens, event.content)


def _break_off(reply: Reply, event: Event, wire: ModuleType) -> Iterator[Action]:
    if reply.error_event:
        yield Write(_chunk(reply, wire.error_event(reply.error_event)))
        yield Write(b"" if reply.framing == "eof" else b"0\r\n\r\n")
        yield End("fin" if reply.framing == "eof" or not reply.keep_alive else "", whole=False)
        return
    if reply.inside:
        chunk = _chunk(reply, event.data)
        yield Write(chunk[: len(chunk) // 2])
    yield from _cut(reply.cut)


def _chunk(reply: Reply, data: bytes) -> bytes:
    return data if reply.framing == "eof" else b"%x\r\n%b\r\n" % (len(data), data)


def _cut(how: Ending) -> Iterator[Action]:
    if how == "rst":
        yield Pause(_BREATH_S)
    yield End(how, whole=False)
