"""Files and batches with the vendor's SDK against the real gateway, killed in between too."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import orjson
import pytest
from openai import AsyncOpenAI
from openai.types import Batch, Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

from tests.e2e.conftest import Providers, client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Fail, Reply
from tests.support.naming import unique
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

URL = "/v1/chat/completions"
NIGHT = ("plain", "--scope", "inference", "--scope", "usage")
"""The team and its key's scopes."""


def line(custom_id: str, text: str, **more: Any) -> dict[str, Any]:
    body = {"model": "small", "messages": [{"role": "user", "content": text}], "max_tokens": 20}
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": body, **more}


async def start(sdk: AsyncOpenAI, *lines: dict[str, Any], **more: Any) -> Batch:
    data = b"\n".join(orjson.dumps(each) for each in lines)
    file = await sdk.files.create(file=("lines.jsonl", data), purpose="batch")
    assert (file.bytes, file.filename, file.status) == (len(data), "lines.jsonl", "processed")
    return await sdk.batches.create(
        input_file_id=file.id, endpoint=lines[0]["url"], completion_window="24h", metadata={"night": "7"}, **more
    )


async def ended(sdk: AsyncOpenAI, batch: Batch) -> Batch:
    async with asyncio.timeout(60):
        while batch.status in ("validating", "in_progress", "finalizing", "cancelling"):
            await asyncio.sleep(0.05)
            batch = await sdk.batches.retrieve(batch.id)
    return batch


async def results(sdk: AsyncOpenAI, file_id: str | None) -> dict[str, Any]:
    """custom_id → result."""
    assert file_id is not None
    text = (await sdk.files.content(file_id)).text
    return {found["custom_id"]: found for found in map(orjson.loads, text.splitlines())}


async def test_a_batch_is_answered_line_by_line_and_stands_on_the_ledger(
    gateway: GatewayProcess, providers: Providers
) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    batch = await start(sdk, *(line(f"l{number}", f"Question {number} of the night") for number in range(8)),
                        line("bad", "[[fail status=422 message=nonsense]]"))  # fmt: skip
    assert batch.status == "validating"
    assert batch.metadata == {"night": "7"}
    batch = await ended(sdk, batch)
    assert batch.status == "completed"
    assert batch.completed_at
    assert batch.request_counts
    assert batch.request_counts.model_dump() == {"total": 9, "completed": 8, "failed": 1}
    assert batch.model == "small"
    output, errors = await results(sdk, batch.output_file_id), await results(sdk, batch.error_file_id)
    assert set(output) == {f"l{number}" for number in range(8)}
    for each in output.values():
        ChatCompletion.model_validate_json(orjson.dumps(each["response"]["body"]), strict=True)
    texts = {exchange.text_sent for exchange in providers.small.exchanges}
    assert output["l3"]["response"]["status_code"] == 200
    assert output["l3"]["response"]["body"]["choices"][0]["message"]["content"] in texts
    assert errors["bad"]["response"]["status_code"] == 422
    async with asyncio.timeout(60):
        while True:
            usage: Any = await sdk.get("/usage?by=tag", cast_to=object)
            mine = [row for row in usage["rows"] if row["tag"] == f"batch={batch.id}"]
            if mine and mine[0]["attempts"] == 9:
                break
            await asyncio.sleep(0.05)
    sent = [exchange.usage for exchange in providers.small.exchanges if exchange.usage]
    assert mine[0]["output_tokens"] == sum(usage.output_tokens for usage in sent)
    assert float(mine[0]["cost_usd"]) > 0
    assert batch.usage
    assert batch.usage.output_tokens == mine[0]["output_tokens"]
    assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens
    Batch.model_validate_json(batch.model_dump_json(), strict=True)


async def test_a_bad_line_is_told_with_its_number(gateway: GatewayProcess, providers: Providers) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    batch = await start(sdk, line("a", "good"), line("b", "bad", url="/v1/embeddings"))
    assert batch.status == "failed"
    assert batch.errors
    assert batch.errors.data
    problem = batch.errors.data[0]
    assert (problem.line, problem.param) == (2, "url")
    assert not providers.small.exchanges


async def test_a_bad_request_spoils_its_own_line_alone(gateway: GatewayProcess, providers: Providers) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    bad = [{"model": "small"}, {"model": "nobody", "messages": [{"role": "user", "content": "hi"}]}]
    asked = await start(sdk, line("a", "good"), *[line(f"b{n}", "", body=body) for n, body in enumerate(bad)])
    batch = await ended(sdk, asked)
    assert batch.status == "completed"
    assert batch.request_counts
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 2)
    assert batch.error_file_id
    told = [orjson.loads(each) for each in (await sdk.files.content(batch.error_file_id)).content.splitlines()]
    said = {each["custom_id"]: (each["response"]["status_code"], each["response"]["body"]["error"]) for each in told}
    assert (said["b0"][0], said["b0"][1]["param"]) == (400, "messages")
    assert (said["b1"][0], said["b1"][1]["code"]) == (404, "model_not_found")


async def test_another_team_sees_neither_files_nor_batches(gateway: GatewayProcess, providers: Providers) -> None:
    mine, theirs = client(gateway, await gateway.key(*NIGHT)), client(gateway, await gateway.key("strangers"))
    batch = await ended(mine, await start(mine, line("a", "our secret")))
    assert batch.output_file_id
    attempts: list[Any] = [
        lambda: theirs.batches.retrieve(batch.id),
        lambda: theirs.batches.cancel(batch.id),
        lambda: theirs.files.retrieve(batch.output_file_id),
        lambda: theirs.files.content(batch.output_file_id),
        lambda: theirs.files.delete(batch.output_file_id),
        lambda: theirs.batches.create(input_file_id=batch.input_file_id, endpoint=URL, completion_window="24h"),
    ]
    for attempt in attempts:
        with pytest.raises(openai.NotFoundError):
            await attempt()
    assert [file async for file in theirs.files.list()] == []
    assert [found async for found in theirs.batches.list()] == []
    ids = [found.id async for found in mine.batches.list(limit=1)]
    assert ids[0] == batch.id
    assert len(set(ids)) == len(ids)
    assert (await mine.files.delete(batch.output_file_id)).deleted
    with pytest.raises(openai.NotFoundError):
        await mine.files.retrieve(batch.output_file_id)


async def test_a_batch_can_be_cancelled(gateway: GatewayProcess, providers: Providers) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    providers.small.default = Reply(delay_s=0.3)
    batch = await start(sdk, *(line(f"l{number}", f"Slow question {number}") for number in range(40)))
    await until(lambda: len(providers.small.exchanges) >= 2)
    assert (await sdk.batches.cancel(batch.id)).status == "cancelling"
    batch = await ended(sdk, batch)
    assert batch.status == "cancelled"
    assert batch.cancelled_at
    sent = len(providers.small.exchanges)
    assert 2 <= sent < 40
    assert len(await results(sdk, batch.output_file_id)) == sent
    assert len(await results(sdk, batch.error_file_id)) == 40 - sent
    with pytest.raises(openai.BadRequestError, match="cancelled"):
        await sdk.batches.cancel(batch.id)


async def test_what_is_no_upload_is_refused_in_openais_words(gateway: GatewayProcess) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.files.create(file=("x", b"x"), purpose="fine-tune")
    assert caught.value.param == "purpose"
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.batches.create(input_file_id="file-x", endpoint="/v1/images/edits", completion_window="24h")
    assert caught.value.param == "endpoint"
    with pytest.raises(openai.APIStatusError) as wrong:
        await sdk.post("/files", body={}, cast_to=object)
    assert wrong.value.status_code == 415


@pytest.mark.parametrize(
    ("url", "body", "answer"),
    [
        ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 9}, Completion),
        ("/v1/responses", {"input": "Hello there", "max_output_tokens": 20}, Response),
        ("/v1/embeddings", {"input": ["one", "two"]}, CreateEmbeddingResponse),
    ],
)
async def test_lines_may_ask_in_every_dialect_of_openais(
    gateway: GatewayProcess, providers: Providers, url: str, body: dict[str, Any], answer: type[BaseModel]
) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    asked = {"model": "small", **body}
    batch = await ended(sdk, await start(sdk, line("a", "", url=url, body=asked), line("b", "", url=url, body=asked)))
    assert (batch.status, batch.endpoint) == ("completed", url)
    assert batch.request_counts
    assert batch.request_counts.model_dump() == {"total": 2, "completed": 2, "failed": 0}
    output = await results(sdk, batch.output_file_id)
    assert set(output) == {"a", "b"}
    for each in output.values():
        answer.model_validate_json(orjson.dumps(each["response"]["body"]), strict=True)
    assert batch.usage
    assert batch.usage.input_tokens > 0
    assert [exchange.path for exchange in providers.small.exchanges] == [url] * 2


async def test_a_line_for_another_endpoint_fails_the_batch(gateway: GatewayProcess) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    batch = await start(sdk, line("a", "good"), line("b", "bad", url="/v1/embeddings"))
    assert batch.status == "failed"
    assert batch.errors
    assert batch.errors.data
    assert [(problem.line, problem.param) for problem in batch.errors.data] == [(2, "url")]


async def test_lists_come_in_pages_and_files_by_purpose(gateway: GatewayProcess, providers: Providers) -> None:
    sdk = client(gateway, await gateway.key(unique("pages")))
    made = [await ended(sdk, await start(sdk, line("a", f"Page {number}"))) for number in range(3)]
    batches = [batch.id async for batch in sdk.batches.list(limit=2)]
    assert batches == [batch.id for batch in reversed(made)]
    page = await sdk.batches.list(limit=2)
    assert (page.has_more, len(page.data)) == (True, 2)
    page = await page.get_next_page()
    assert (page.has_more, len(page.data)) == (False, 1)
    outputs = [file.id async for file in sdk.files.list(purpose="batch_output", order="asc", limit=1)]
    assert outputs == [batch.output_file_id for batch in made]
    inputs = [file.id async for file in sdk.files.list(purpose="batch")]
    assert inputs == [batch.input_file_id for batch in reversed(made)]


async def test_files_go_when_their_client_says(gateway: GatewayProcess, providers: Providers) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    data = orjson.dumps(line("a", "Hello"))
    kept = await sdk.files.create(file=data, purpose="batch")
    assert kept.expires_at == kept.created_at + 30 * 86400
    file = await sdk.files.create(
        file=("x.jsonl", data), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert file.expires_at == file.created_at + 3600
    assert (await sdk.files.retrieve(file.id)).expires_at == file.expires_at
    batch = await sdk.batches.create(
        input_file_id=file.id,
        endpoint=URL,
        completion_window="24h",
        output_expires_after={"anchor": "created_at", "seconds": 7200},
    )
    assert batch.metadata is None
    batch = await ended(sdk, batch)
    output = await sdk.files.retrieve(batch.output_file_id or "")
    assert output.expires_at == output.created_at + 7200
    assert output.purpose == "batch_output"
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.files.create(file=data, purpose="batch", expires_after={"anchor": "created_at", "seconds": 60})
    assert caught.value.param == "expires_after[seconds]"


async def test_ids_that_there_are_not_are_told_in_openais_words(gateway: GatewayProcess) -> None:
    sdk = client(gateway, await gateway.key(*NIGHT))
    attempts: list[tuple[Any, str]] = [
        (sdk.files.retrieve("file-x"), "file_id"),
        (sdk.files.content("file-x"), "file_id"),
        (sdk.files.delete("file-x"), "file_id"),
        (sdk.batches.retrieve("batch_x"), "batch_id"),
        (sdk.batches.cancel("batch_x"), "batch_id"),
        (sdk.batches.create(input_file_id="file-x", endpoint=URL, completion_window="24h"), "file_id"),
    ]
    for attempt, param in attempts:
        with pytest.raises(openai.NotFoundError) as caught:
            await attempt
        assert caught.value.param == param
        assert caught.value.type == "invalid_request_error"
        assert caught.value.request_id
    with pytest.raises(openai.BadRequestError) as wrong:
        await sdk.batches.list(limit=1000)
    assert wrong.value.param == "limit"


async def test_a_budget_that_ends_in_the_middle_ends_the_rest_in_openais_words(
    gateway: GatewayProcess, providers: Providers, run: int
) -> None:
    sdk = client(gateway, await gateway.key(f"frugal-{run}"))
    batch = await start(sdk, *(line(f"l{number}", f"What does {number} cost?") for number in range(60)))
    batch = await ended(sdk, batch)
    assert batch.status == "completed"
    output, errors = await results(sdk, batch.output_file_id), await results(sdk, batch.error_file_id)
    assert output
    assert errors
    assert len(output) + len(errors) == 60
    assert len(output) == len(providers.small.exchanges)
    for each in errors.values():
        assert each["response"]["status_code"] == 429
        assert each["response"]["body"]["error"]["code"] == "insufficient_quota"


async def test_a_batch_outlives_kill_9_without_sending_an_answered_line_again(
    gateway: GatewayProcess, providers: Providers
) -> None:
    sdk, provider = client(gateway, await gateway.key(*NIGHT)), providers.small
    provider.script(Fail(422, "nonsense"), *[Reply()] * 11)
    provider.default = Reply(delay_s=60)  # those that follow are in flight when the gateway is killed
    batch = await start(sdk, *(line(f"l{number}", f"Question {number}.") for number in range(24)))
    await until(lambda: len(recorded(gateway, batch)) == 12)
    await asyncio.to_thread(gateway.kill)
    provider.default = Reply()
    try:
        done = await asyncio.to_thread(recorded, gateway, batch)
        before = len(provider.exchanges)
    finally:
        await asyncio.to_thread(gateway.start)
    batch = await ended(sdk, batch)
    assert batch.status == "completed"
    again = [each.json["messages"][0]["content"] for each in list(provider.exchanges)[before:]]
    assert len(done) == 12
    assert sorted(again) == sorted(f"Question {number}." for number in range(24) if f"l{number}" not in done)
    assert len(await results(sdk, batch.output_file_id)) == 23
    assert len(await results(sdk, batch.error_file_id)) == 1


def recorded(gateway: GatewayProcess, batch: Batch) -> set[str]:
    """Lines that have a result on the disk."""
    files = (gateway.home / "data" / "files").glob(f"file-{batch.id.removeprefix('batch_')}-*")
    lines = b"".join(path.read_bytes() for path in files).splitlines(keepends=True)
    return {orjson.loads(each)["custom_id"] for each in lines if each.endswith(b"\n")}
