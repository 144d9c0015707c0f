from __future__ import annotations

import asyncio
import gzip
from typing import Any

import orjson
import pytest

from gateway.batches.files import Page
from gateway.domain.tenant import Viewer
from tests.api.batch_desk import Desk
from tests.fakes.client import JSON
from tests.support.requests import chat_fields

URL = "/v1/chat/completions"
BODY = chat_fields()
LINE = orjson.dumps({"custom_id": "a", "method": "POST", "url": URL, "body": BODY})
FORM = {"content-type": "multipart/form-data; boundary=xyz"}


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--xyz\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


def form(*parts: bytes, data: bytes = LINE) -> bytes:
    file = part("file", data, '; filename="lines.jsonl"')
    return b"".join([file, part("purpose", b"batch"), *parts, b"--xyz--\r\n"])


async def uploaded(desk: Desk) -> str:
    file_id: str = (await desk.send("/v1/files", method="POST", headers=FORM, body=form())).json["id"]
    return file_id


async def create(desk: Desk, headers: dict[str, str] | None = None, **asked: Any) -> Any:
    body = {"input_file_id": await uploaded(desk), "endpoint": URL, "completion_window": "24h", **asked}
    return await desk.send("/v1/batches", method="POST", headers={**JSON, **(headers or {})}, body=orjson.dumps(body))


async def test_an_upload_may_be_compressed_and_hold_fields_of_tomorrow(desk: Desk) -> None:
    body = gzip.compress(form(part("tomorrow", b"x")))
    made = await desk.send("/v1/files", method="POST", headers={**FORM, "content-encoding": "gzip"}, body=body)
    assert made.status == 200
    content = await desk.send(f"/v1/files/{made.json['id']}/content")
    assert content.body == LINE
    assert made.json["bytes"] == len(LINE)


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ({"anchor": b"created_at"}, "seconds"),
        ({"seconds": b"3600"}, "anchor"),
        ({"anchor": b"created_at", "seconds": b"1e4"}, "seconds"),
        ({"anchor": b"today", "seconds": b"3600"}, "anchor"),
    ],
)
async def test_an_expiry_that_makes_no_sense_is_told(desk: Desk, parts: dict[str, bytes], param: str) -> None:
    body = form(*(part(f"expires_after[{name}]", value) for name, value in parts.items()))
    answer = await desk.send("/v1/files", method="POST", headers=FORM, body=body)
    assert (answer.status, answer.error["param"]) == (400, f"expires_after[{param}]")
    assert await desk.files.page(Viewer("search"), Page()) == []


async def test_a_compressed_body_that_is_none_or_breaks_off_is_refused(desk: Desk) -> None:
    whole = gzip.compress(form())
    for body, coding, status in (
        (whole[:-9], "gzip", 400),
        (b"hello", "gzip", 400),
        (whole, "lzma", 415),
    ):
        answer = await desk.send("/v1/files", method="POST", headers={**FORM, "content-encoding": coding}, body=body)
        assert answer.status == status
        assert answer.error["type"] == "invalid_request_error"


async def test_what_its_headers_say_holds_for_every_line(desk: Desk) -> None:
    answer = await create(desk, {"x-thriftgate-tags": "night=7", "openai-beta": "x", "user-agent": "me"})
    batch = await desk.jobs.get(Viewer("search"), answer.json["id"])
    assert orjson.loads(batch.headers or "") == {"x-thriftgate-tags": "night=7", "openai-beta": "x"}
    wrong = await create(desk, {"x-thriftgate-tier": "gigantic"})
    assert (wrong.status, wrong.error["param"]) == (400, "x-thriftgate-tier")


async def test_metadata_may_be_as_large_as_openai_allows(desk: Desk) -> None:
    metadata = {f"{number:064}": "ü" * 512 for number in range(16)}
    answer = await create(desk, metadata=metadata)
    assert answer.json["metadata"] == metadata


async def test_bytes_that_lie_elsewhere_are_not_found(desk: Desk) -> None:
    file_id = await uploaded(desk)
    await asyncio.to_thread(desk.files.path(file_id).unlink)
    assert (await desk.send(f"/v1/files/{file_id}/content")).status == 404
    body = orjson.dumps({"input_file_id": file_id, "endpoint": URL, "completion_window": "24h"})
    answer = await desk.send("/v1/batches", method="POST", headers=JSON, body=body)
    assert (answer.status, answer.error["param"]) == (404, "input_file_id")


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=101", "order=up", "limit="])
async def test_a_page_that_makes_no_sense_is_told(desk: Desk, query: str) -> None:
    assert (await desk.send("/v1/batches", query=query)).status == 400


async def test_a_client_may_leave_out_v1(desk: Desk) -> None:
    file_id = await uploaded(desk)
    assert (await desk.send(f"/files/{file_id}")).json["id"] == file_id
    assert (await desk.send("/batches")).json["data"] == []


async def test_a_key_makes_one_batch_however_often_it_is_asked_for(desk: Desk) -> None:
    file_id = await uploaded(desk)
    body = {"input_file_id": file_id, "endpoint": URL, "completion_window": "24h"}

    async def again(key: str = "k1", **more: Any) -> Any:
        headers = {**JSON, "idempotency-key": key}
        return await desk.send("/v1/batches", method="POST", headers=headers, body=orjson.dumps({**body, **more}))

    first, *others = await asyncio.gather(*(again() for _ in range(5)))
    assert {other.json["id"] for other in others} == {first.json["id"]}
    assert (await again("k2")).json["id"] != first.json["id"]
    reused = await again(metadata={"a": "b"})
    assert (reused.status, reused.error["code"]) == (422, "idempotency_key_reused")
    assert (await again("")).status == 400
    assert len(await desk.jobs.page(Viewer("search"), Page())) == 2
