from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.requests import Request

from gateway.api.server import multipart, upload
from gateway.api.server.asgi import Pace
from gateway.api.server.multipart import receive_form
from gateway.api.server.upload import Uploads
from gateway.errors import BadRequest, BodyTooLarge, GatewayError, RequestTimeout, UnsupportedMediaType

TYPE = "multipart/form-data; boundary=xyz"
FILE = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="l.jsonl"\r\nContent-Type: text/x\r\n\r\n%s\r\n'
PURPOSE = b'--xyz\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
END = b"--xyz--\r\n"


def asking(pieces: Iterable[bytes], content_type: str = TYPE, length: int | None = None) -> Request:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ] + [{"type": "http.request", "body": b"", "more_body": False}]
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left, {"type": "http.disconnect"})

    headers = [(b"content-type", content_type.encode())]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def read(*pieces: bytes, limit: int = 1000, **more: Any) -> tuple[multipart.Form, bytes]:
    got = bytearray()
    form = await receive_form(asking(pieces, **more), got.extend, limit, Uploads(Pace(1.0)))
    return form, bytes(got)


@pytest.mark.parametrize("data", [b"", b"one\r\ntwo\n", b"\r\n--xy", b"--xyz", bytes(range(256))])
@pytest.mark.parametrize("file_first", [True, False])
async def test_a_form_is_read_however_it_is_cut(data: bytes, file_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PIECE", 1)
    parts = [FILE % data, PURPOSE]
    whole = b"".join(parts if file_first else parts[::-1]) + END
    for size in (1, 7, len(whole)):
        form, got = await read(*(whole[start : start + size] for start in range(0, len(whole), size)))
        assert (got, form.filename, form.fields) == (data, "l.jsonl", {"purpose": "batch"})


@pytest.mark.parametrize(
    ("body", "more", "error", "told"),
    [
        (END, {"content_type": "application/json"}, UnsupportedMediaType, "multipart/form-data"),
        (END, {"content_type": "multipart/form-data"}, UnsupportedMediaType, "boundary"),
        (END, {"content_type": f"multipart/form-data; boundary={'x' * 300}"}, BadRequest, "cannot be read"),
        (b"hello", {}, BadRequest, "cannot be read"),
        (FILE % b"x", {}, BadRequest, "before its last boundary"),
        (b"", {}, BadRequest, "before its last boundary"),
        (FILE % b"x" + FILE % b"y" + END, {}, BadRequest, "two parts called 'file'"),
        (PURPOSE + PURPOSE + END, {}, BadRequest, "two parts called 'purpose'"),
        (PURPOSE.replace(b"batch", b"x" * 2000) + END, {}, BadRequest, "longer than 1000"),
        (FILE % (b"x" * 70_000) + END, {"limit": 100}, BodyTooLarge, "larger than 100"),
        (END, {"limit": 100, "length": 10**9}, BodyTooLarge, "larger than 100"),
    ],
)
async def test_a_form_that_makes_no_sense_is_told_so(
    body: bytes, more: dict[str, Any], error: type[GatewayError], told: str
) -> None:
    with pytest.raises(error, match=told):
        await read(body, **more)


async def test_a_client_that_leaves_or_stalls_is_not_waited_for() -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def silent() -> dict[str, Any]:
        await asyncio.sleep(10)
        raise AssertionError

    for receive, error, told in (
        (gone, ConnectionResetError, "left"),
        (silent, RequestTimeout, "did not arrive in time"),
    ):
        request = Request({"type": "http", "headers": [(b"content-type", TYPE.encode())]}, receive)
        with pytest.raises(error, match=told):
            await receive_form(request, bytearray().extend, 10, Uploads(Pace(0.01)))
