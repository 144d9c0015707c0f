"""Bodies within their limits, keys out of headers, and clients that leave."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from gateway.api.server.asgi import Pace, by_name, check_json, check_length, read_body, read_object, secret, send_whole
from gateway.api.server.caller import AsgiCaller, HangUp
from gateway.errors import BadRequest, BodyTooLarge, InvalidKey, UnsupportedMediaType
from gateway.runtime.deadlines import Deadlines
from tests.support.waiting import until


def scope(**headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": "POST", "headers": pairs}


class Sender:
    """A client's side of `receive`: messages one after the other, then silence or a disconnect."""

    def __init__(self, pieces: Iterable[bytes], *, ends: bool = True, leaves: bool = False, pause_s: float = 0) -> None:
        self.pieces, self.ends, self.leaves, self.pause_s = list(pieces), ends, leaves, pause_s
        self.taken = 0

    async def __call__(self) -> Message:
        await asyncio.sleep(self.pause_s)
        if self.pieces:
            self.taken += 1
            body = self.pieces.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self.pieces) or not self.ends}
        if not self.leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}


async def test_a_body_in_one_piece_is_read() -> None:
    assert await read_body(Sender([b"{}"]), 10, Pace(1.0)) == b"{}"


async def test_a_body_in_chunks_is_put_together() -> None:
    assert await read_body(Sender([b"a", b"", b"bc", b"d"]), 4, Pace(1.0)) == b"abcd"


def test_a_body_that_says_it_is_too_large_need_not_be_read() -> None:
    with pytest.raises(BodyTooLarge, match="10 bytes"):
        check_length({b"content-length": b"11"}, 10)
    check_length({b"content-length": b"10"}, 10)
    check_length({}, 10)


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"x"] * 11])
async def test_a_chunked_body_is_cut_off_where_it_becomes_too_large(pieces: list[bytes]) -> None:
    sender = Sender([*pieces, b"never read"] if len(pieces) > 1 else pieces)
    with pytest.raises(BodyTooLarge):
        await read_body(sender, 10, Pace(1.0))
    assert b"never read" in sender.pieces or len(pieces) == 1


async def test_a_length_that_lies_does_not_lift_the_limit() -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(Sender([b"x" * 6, b"x" * 6]), 10, Pace(1.0))


async def test_a_body_that_stalls_is_refused() -> None:
    with pytest.raises(BadRequest, match="did not arrive in time"):
        await read_body(Sender([b"a"], ends=False), 10, Pace(0.05))


async def test_a_body_that_drips_has_one_deadline_for_all_of_it() -> None:
    with pytest.raises(BadRequest, match="did not arrive in time"):
        await read_body(Sender([b"a"] * 9, pause_s=0.03), 10, Pace(0.08))


async def test_a_client_that_leaves_is_told_apart_from_a_slow_one() -> None:
    for pieces in ([], [b"a"]):
        with pytest.raises(ConnectionResetError):
            await read_body(Sender(pieces, ends=False, leaves=True), 10, Pace(1.0))


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer tg-1"},
        {"authorization": "bearer  tg-1 "},
        {"authorization": "BEARER tg-1", "x_api_key": "tg-2"},
        {"x_api_key": "tg-1"},
        {"x_goog_api_key": "tg-1"},
        {"authorization": "Bearer ", "x_api_key": "tg-1"},
        {"authorization": "Basic dGctMQ==", "x_api_key": "tg-1"},
        {"authorization": "Bearer sk-ant-oat-of-another-login", "x_api_key": "tg-1"},
        {"authorization": "AWS4-HMAC-SHA256 Credential=tg-1/20251124/eu/bedrock/aws4_request, Signature=0"},
    ],
)
def test_a_key_is_found_where_the_vendors_sdks_put_it(headers: dict[str, str]) -> None:
    assert secret(by_name(scope(**headers)["headers"])) == b"tg-1"


@pytest.mark.parametrize("headers", [{}, {"authorization": "tg-1"}, {"authorization": "Bearer"}, {"x_api_key": ""}])
def test_without_a_key_the_message_says_how_to_get_one(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidKey, match="thriftgate keys create"):
        secret(by_name(scope(**headers)["headers"]))


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"])
def test_json_is_taken(kind: str) -> None:
    check_json(by_name(scope(content_type=kind, content_encoding="identity")["headers"]))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
    ],
)
def test_anything_else_is_told_apart(headers: dict[str, str]) -> None:
    with pytest.raises(UnsupportedMediaType):
        check_json(by_name(scope(**headers)["headers"]))


def test_the_first_header_of_a_name_counts() -> None:
    assert by_name([(b"a", b"1"), (b"a", b"2"), (b"b", b"3")]) == {b"a": b"1", b"b": b"3"}


async def test_a_reply_that_is_known_whole_says_how_long_it_is() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await send_whole(send, 418, [(b"x-a", b"1")], b"short")
    assert sent[0]["status"] == 418
    assert sent[0]["headers"] == [(b"x-a", b"1"), (b"content-length", b"5")]
    assert sent[1] == {"type": "http.response.body", "body": b"short"}


@pytest.mark.parametrize(("body", "complaint"), [(b"[1]", "JSON object"), (b"{", "not valid JSON"), (b"", "not valid")])
async def test_a_small_object_is_asked_for_in_words(body: bytes, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        await read_object(Request(scope(content_type="application/json"), Sender([body])))


async def test_a_small_object_is_small() -> None:
    request = Request(scope(content_type="application/json"), Sender([b'{"a": 1}']))
    assert await read_object(request) == {"a": 1}
    with pytest.raises(BodyTooLarge):
        await read_object(Request(scope(content_type="application/json"), Sender([b"[" * 10_001])))


async def serve_with(answered: bool) -> tuple[HangUp, bool]:
    """A task whose client leaves, twice; was it cancelled?"""

    async def serving() -> None:
        await asyncio.sleep(0.1)

    task = asyncio.get_running_loop().create_task(serving())
    hang_up = HangUp(task)
    hang_up.answered = answered
    hang_up()
    hang_up()
    await asyncio.wait([task])
    return hang_up, task.cancelled()


async def test_a_client_that_leaves_cancels_whoever_serves_it() -> None:
    hang_up, cancelled = await serve_with(answered=False)
    assert hang_up.happened
    assert cancelled


async def test_a_client_that_has_its_answer_may_leave() -> None:
    hang_up, cancelled = await serve_with(answered=True)
    assert not hang_up.happened
    assert not cancelled


async def test_a_caller_is_freed_at_its_end_without_the_garbage_collector() -> None:
    asked = {**scope(), "path": "/", "query_string": b""}
    caller = AsgiCaller(asked, Sender([]), lambda _: asyncio.sleep(0), Deadlines())
    freed = weakref.ref(caller)
    gc.disable()
    try:
        caller.listen(lambda: None)
        await asyncio.sleep(0)
        caller.close()
        del caller
        await until(lambda: freed() is None)
    finally:
        gc.enable()
