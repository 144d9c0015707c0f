from __future__ import annotations

import gzip
import time
from dataclasses import replace
from typing import Any

import orjson
import pytest
from anthropic.types.messages import MessageBatch

from gateway.api.routes.message_batches import PATH, counts, shown
from gateway.batches.batch import Batch, Ended
from gateway.batches.files import Page
from gateway.domain.tenant import Viewer
from tests.api.batch_desk import Desk
from tests.fakes.client import JSON, Client
from tests.support.requests import fields_in

SDK = {**JSON, "anthropic-version": "2023-06-01"}
PARAMS = fields_in("anthropic_messages", max_tokens=9)
BODY = orjson.dumps({"requests": [{"custom_id": "a", "params": PARAMS}]})
DAY_S = 24 * 3600

BATCH = Batch(
    id="msgbatch_1",
    team="search",
    key_id="k",
    status="in_progress",
    endpoint="/v1/messages",
    input_file_id="file-1",
    metadata="{}",
    total=9,
    created_at=time.time(),
    expires_at=time.time() + DAY_S,
    completed=3,
    failed=2,
)


def message_of(error: Client) -> str:
    """The message of an error, in Anthropic's shape."""
    body = error.json
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    assert body["request_id"] == error.headers["request-id"]
    message: str = body["error"]["message"]
    return message


async def create(desk: Desk, body: bytes = BODY, headers: dict[str, str] | None = None, **more: Any) -> Client:
    return await desk.send(PATH, method="POST", headers={**SDK, **(headers or {})}, body=body, **more)


async def test_a_body_may_come_in_pieces_and_compressed(desk: Desk) -> None:
    body = gzip.compress(BODY)
    answer = await desk.send(
        PATH, method="POST", headers={**SDK, "content-encoding": "gzip"}, body=[bytes([byte]) for byte in body]
    )
    assert answer.status == 200
    MessageBatch.model_validate_json(answer.body, strict=True)
    assert answer.json["request_counts"] == {"processing": 1, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}


async def test_what_its_headers_and_query_say_holds_for_every_request(desk: Desk) -> None:
    headers = {"anthropic-beta": "x-2030", "x-thriftgate-tags": "night=7", "user-agent": "me"}
    answer = await create(desk, headers=headers, query="beta=true")
    batch = await desk.message_jobs.get(Viewer("search"), answer.json["id"])
    assert orjson.loads(batch.headers or "") == {
        "anthropic-beta": "x-2030", "anthropic-version": "2023-06-01", "x-thriftgate-tags": "night=7", "?": "beta=true",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "base"),
    [
        ({}, "http://test"),
        ({"host": "gateway.acme:8080"}, "http://gateway.acme:8080"),
        ({"host": "10.0.0.1", "x-forwarded-proto": "https", "x-forwarded-host": "llm.acme"}, "https://llm.acme"),
        ({"host": "llm.acme", "x-forwarded-proto": "https, http"}, "https://llm.acme"),
        ({"host": "llm.acme", "x-forwarded-proto": "javascript"}, "http://llm.acme"),
    ],
)
async def test_results_are_where_the_client_found_the_gateway(desk: Desk, headers: dict[str, str], base: str) -> None:
    batch_id = (await create(desk)).json["id"]
    assert (await desk.send(f"{PATH}/{batch_id}")).json["results_url"] is None
    batch = await desk.message_jobs.get(Viewer("search"), batch_id)
    await desk.jobs.finish(batch, Ended("completed", counts=(1, 0)))
    answer = await desk.send(f"{PATH}/{batch_id}", headers={**SDK, **headers})
    assert answer.json["results_url"] == f"{base}{PATH}/{batch_id}/results"
    assert answer.json["processing_status"] == "ended"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body is not valid JSON"),
        (b"[]", "requests: must be a list"),
        (b'{"requests":[]}', "requests: must be a list"),
        (b'{"requests":[{"custom_id":"a","params":NaN}]}', "requests.0: This is not valid JSON"),
        (b'{"requests":[{"custom_id":"\\ud800","params":{}}]}', "requests.0: This is not valid JSON"),
        (b'{"requests":[{"custom_id":7,"params":{}}]}', "requests.0.custom_id: "),
        (b'{"requests":[{"custom_id":"a","params":[]}]}', "requests.0.params: "),
    ],
)
async def test_a_body_that_is_no_batch_is_refused_and_leaves_nothing(desk: Desk, body: bytes, message: str) -> None:
    answer = await create(desk, body)
    assert answer.status == 400
    assert message_of(answer).startswith(message)
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert await desk.message_jobs.page(Viewer("search"), Page()) == []
    assert [path.name for path in desk.files.directory.iterdir()] == []


async def test_a_request_or_a_body_that_is_too_large_is_told_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    large = BODY.replace(b"hello", b"h" * 20_000)
    answer = await create(desk, large)
    assert (answer.status, answer.json["error"]["type"]) == (413, "request_too_large")
    assert message_of(answer) == "requests.0: longer than 10000 bytes, the limit of a request."
    monkeypatch.setattr("gateway.api.routes.message_batches.MAX_BYTES", 50)
    for headers in ({}, {"content-length": str(len(BODY))}):
        answer = await create(desk, headers=headers)
        assert answer.status == 413
        assert "larger than 50 bytes" in message_of(answer)


async def test_errors_have_anthropics_shape(desk: Desk) -> None:
    for answer, status, kind in (
        (await desk.send(f"{PATH}/msgbatch_x", headers=SDK), 404, "not_found_error"),
        (await desk.send(f"{PATH}/msgbatch_x/results", headers=SDK), 404, "not_found_error"),
        (await desk.send(f"{PATH}/msgbatch_x/cancel", headers=SDK, method="POST"), 404, "not_found_error"),
        (await desk.send(PATH, headers=SDK, team="tg-unknown"), 401, "authentication_error"),
        (await create(desk, headers={"content-type": "text/plain"}), 415, "invalid_request_error"),
        (await create(desk, headers={"x-thriftgate-tier": "gigantic"}), 400, "invalid_request_error"),
        (await desk.send(PATH, headers=SDK, query="limit=0"), 400, "invalid_request_error"),
    ):
        assert message_of(answer)
        assert (answer.status, answer.json["error"]["type"]) == (status, kind)


def test_counts_move_only_when_the_batch_has_ended() -> None:
    none = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
    assert counts(BATCH) == {**none, "processing": 9}
    done = replace(BATCH, status="completed", finished_at=1.0, completed=7, failed=2, unsent=0)
    assert counts(done) == {**none, "succeeded": 7, "errored": 2}
    late = replace(done, status="expired", completed=3, failed=6, unsent=5)
    assert counts(late) == {**none, "succeeded": 3, "errored": 1, "expired": 5}
    assert counts(replace(late, status="cancelled")) == {**none, "succeeded": 3, "errored": 1, "canceled": 5}
    lost = replace(late, completed=3, failed=2, unsent=None)  # its file was lost with its host
    assert counts(lost) == {**none, "succeeded": 3, "errored": 2, "expired": 4}


@pytest.mark.parametrize("status", ["validating", "in_progress", "finalizing", "cancelling"])
def test_a_batch_is_shown_as_anthropic_shows_it(status: str) -> None:
    batch = replace(BATCH, status=status, cancelling_at=time.time() if status == "cancelling" else None)
    found = MessageBatch.model_validate_json(orjson.dumps(shown(batch, "http://x")), strict=True)
    assert found.processing_status == ("canceling" if status == "cancelling" else "in_progress")
    assert set(shown(batch, "http://x")) == set(MessageBatch.model_fields)
    assert (found.cancel_initiated_at is None) == (status != "cancelling")


def test_an_old_batch_is_archived() -> None:
    old = replace(BATCH, status="completed", finished_at=9.0, created_at=time.time() - 29 * DAY_S - 1)
    found = shown(old, "http://x")
    assert found["results_url"] is None
    assert found["archived_at"]


async def test_a_key_makes_one_batch_however_often_it_is_asked_for(desk: Desk) -> None:
    key = {"idempotency-key": "k1"}
    first, second = await create(desk, headers=key), await create(desk, headers=key)
    assert first.json["id"] == second.json["id"]
    assert len(list(desk.files.directory.glob("file-*"))) == 1
    reused = await create(desk, BODY.replace(b"hello", b"other"), headers=key)
    assert (reused.status, reused.json["error"]["type"]) == (422, "invalid_request_error")
    assert (await create(desk, headers={"idempotency-key": "k2"})).json["id"] != first.json["id"]
    assert len(list(desk.files.directory.glob("file-*"))) == 2
