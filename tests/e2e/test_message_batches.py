"""Message batches with Anthropic's SDK against the real gateway, killed in between too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anthropic
import orjson
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

from tests.e2e.conftest import Providers
from tests.e2e.conftest import client as openai_client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.naming import unique
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

NIGHT = ("plain", "--scope", "inference", "--scope", "usage")
Connect = Callable[..., Awaitable[AsyncAnthropic]]


@pytest.fixture
async def connect(gateway: GatewayProcess) -> AsyncIterator[Connect]:
    made: list[AsyncAnthropic] = []

    async def connect(*team: str, **more: Any) -> AsyncAnthropic:
        key = await gateway.key(*(team or NIGHT))
        made.append(AsyncAnthropic(base_url=gateway.base, api_key=key, max_retries=0, **more))
        return made[-1]

    yield connect
    for each in made:
        await each.close()


def request(custom_id: str, text: str = "Hello", **more: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return {"custom_id": custom_id, "params": {"model": "claude", "max_tokens": 20, "messages": messages, **more}}


async def ended(sdk: AsyncAnthropic, batch: Any) -> MessageBatch:
    async with asyncio.timeout(60):
        while batch.processing_status != "ended":
            assert batch.request_counts.processing == sum(batch.request_counts.model_dump().values())
            assert batch.results_url is None
            await asyncio.sleep(0.05)
            batch = await sdk.messages.batches.retrieve(batch.id)
    assert isinstance(batch, MessageBatch)
    MessageBatch.model_validate_json(batch.model_dump_json(), strict=True)
    return batch


async def results(sdk: AsyncAnthropic, batch: MessageBatch) -> dict[str, Any]:
    """custom_id → result."""
    found = [each async for each in await sdk.messages.batches.results(batch.id)]
    for each in found:
        MessageBatchIndividualResponse.model_validate_json(each.model_dump_json(), strict=True)
    assert len({each.custom_id for each in found}) == len(found)
    return {each.custom_id: each.result for each in found}


@pytest.mark.parametrize("model", ["claude", "small"])
async def test_a_batch_is_answered_request_by_request_and_stands_on_the_ledger(
    gateway: GatewayProcess, providers: Providers, connect: Connect, model: str
) -> None:
    sdk = await connect()
    batch = await sdk.messages.batches.create(
        requests=[
            *(request(f"r{number}", f"Question {number} of the night", model=model) for number in range(8)),
            request("refused", "[[fail status=422 message=nonsense]]", model=model),
            request("wrong", model=model, max_tokens="many"),
            request("streamed", model=model, stream=True),
        ]
    )
    assert batch.id.startswith("msgbatch_")
    assert (batch.processing_status, batch.request_counts.processing) == ("in_progress", 11)
    assert (batch.expires_at - batch.created_at).total_seconds() == 24 * 3600
    batch = await ended(sdk, batch)
    assert batch.request_counts.model_dump() == {
        "processing": 0, "succeeded": 8, "errored": 3, "canceled": 0, "expired": 0,
    }  # fmt: skip
    assert batch.results_url == f"{gateway.base}/v1/messages/batches/{batch.id}/results"
    assert batch.ended_at
    assert (batch.cancel_initiated_at, batch.archived_at) == (None, None)
    found = await results(sdk, batch)
    provider: Provider = getattr(providers, model)
    texts = {exchange.text_sent for exchange in provider.exchanges}
    for number in range(8):
        assert found[f"r{number}"].type == "succeeded"
        assert found[f"r{number}"].message.content[0].text in texts
    for name in ("refused", "wrong", "streamed"):
        assert found[name].type == "errored"
        assert found[name].error.error.type == "invalid_request_error"
    assert "nonsense" in found["refused"].error.error.message
    assert "max_tokens" in found["wrong"].error.error.message
    assert len(provider.exchanges) == 9
    mine = await rows(gateway, batch.id, 9)
    assert mine["output_tokens"] == sum(each.usage.output_tokens for each in provider.exchanges if each.usage)
    assert float(mine["cost_usd"]) > 0


async def rows(gateway: GatewayProcess, batch_id: str, count: int) -> dict[str, Any]:
    """What the ledger says of a batch, once it has so many rows."""
    sdk = openai_client(gateway, await gateway.key(*NIGHT))
    async with asyncio.timeout(60):
        while True:
            usage: Any = await sdk.get("/usage?by=tag", cast_to=object)
            mine: list[dict[str, Any]] = [row for row in usage["rows"] if row["tag"] == f"batch={batch_id}"]
            if mine and mine[0]["attempts"] == count:
                return mine[0]
            await asyncio.sleep(0.05)


async def test_the_beta_client_gets_the_same_and_its_betas_reach_the_backend(
    providers: Providers, connect: Connect
) -> None:
    sdk = await connect()
    made = await sdk.beta.messages.batches.create(requests=[request("a")], betas=["tomorrow-2030-01-01"])
    batch = await ended(sdk, made)
    assert batch.id in [each.id async for each in sdk.beta.messages.batches.list(limit=1)]
    (found,) = [each async for each in await sdk.beta.messages.batches.results(batch.id)]
    assert (found.custom_id, found.result.type) == ("a", "succeeded")
    exchange = providers.claude.last
    assert b"tomorrow-2030-01-01" in (exchange.header(b"anthropic-beta") or b"")
    assert exchange.path == "/v1/messages?beta=true"
    assert (await sdk.beta.messages.batches.delete(batch.id)).type == "message_batch_deleted"


async def test_a_batch_can_be_cancelled_and_then_deleted(providers: Providers, connect: Connect) -> None:
    sdk = await connect()
    providers.claude.default = Reply(delay_s=0.3)
    batch = await sdk.messages.batches.create(requests=[request(f"r{number}") for number in range(40)])
    await until(lambda: len(providers.claude.exchanges) >= 2)
    with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
        await sdk.messages.batches.delete(batch.id)
    batch = await sdk.messages.batches.cancel(batch.id)
    assert batch.processing_status == "canceling"
    assert batch.cancel_initiated_at
    batch = await ended(sdk, batch)
    sent = len(providers.claude.exchanges)
    assert 2 <= sent < 40
    assert (batch.request_counts.succeeded, batch.request_counts.canceled) == (sent, 40 - sent)
    found = await results(sdk, batch)
    assert sum(each.type == "canceled" for each in found.values()) == 40 - sent
    with pytest.raises(anthropic.BadRequestError):
        await sdk.messages.batches.cancel(batch.id)
    deleted = await sdk.messages.batches.delete(batch.id)
    assert (deleted.id, deleted.type) == (batch.id, "message_batch_deleted")
    with pytest.raises(anthropic.NotFoundError):
        await sdk.messages.batches.retrieve(batch.id)


async def test_lists_come_in_pages_in_both_directions(providers: Providers, connect: Connect) -> None:
    sdk = await connect(unique("letters"))
    ids = [(await sdk.messages.batches.create(requests=[request("a")])).id for _ in range(5)][::-1]
    assert [each.id async for each in sdk.messages.batches.list(limit=2)] == ids
    page = await sdk.messages.batches.list(limit=2)
    assert (page.has_more, page.first_id, page.last_id) == (True, ids[0], ids[1])
    page = await sdk.messages.batches.list(limit=2, after_id=ids[2])
    assert ([each.id for each in page.data], page.has_more) == (ids[3:], False)
    page = await sdk.messages.batches.list(limit=2, before_id=ids[3])
    assert ([each.id for each in page.data], page.has_more) == (ids[1:3], True)
    assert [each.id async for each in page] == [*ids[1:3], ids[0]]
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after_id": ids[0], "before_id": ids[1]}):
        with pytest.raises(anthropic.BadRequestError):
            await sdk.messages.batches.list(**wrong)


async def test_another_team_and_the_other_vendors_clients_see_nothing(
    gateway: GatewayProcess, providers: Providers, connect: Connect
) -> None:
    sdk, theirs = await connect("letters"), await connect("strangers")
    batch = await ended(sdk, await sdk.messages.batches.create(requests=[request("a", "our secret")]))
    mine = openai_client(gateway, await gateway.key("letters"))
    attempts: list[Any] = [
        theirs.messages.batches.retrieve(batch.id),
        theirs.messages.batches.cancel(batch.id),
        theirs.messages.batches.delete(batch.id),
        theirs.messages.batches.results(batch.id),
        theirs.get(f"/v1/messages/batches/{batch.id}/results", cast_to=object),
    ]
    for attempt in attempts:
        with pytest.raises(anthropic.NotFoundError) as caught:
            await attempt
        assert caught.value.type == "not_found_error"
        assert caught.value.request_id
    assert [each async for each in theirs.messages.batches.list()] == []
    assert [each async for each in mine.batches.list()] == []
    assert [each async for each in mine.files.list()] == []


async def test_what_is_no_batch_is_refused_in_anthropics_words(connect: Connect) -> None:
    sdk = await connect()
    for requests, told in (
        ([], "at least one request"),
        ([request("a"), request("a")], "requests.1.custom_id"),
        ([request("not an id")], "requests.0.custom_id"),
        ([{"custom_id": "a"}], "requests.0.params"),
        (["x"], "requests.0"),
    ):
        with pytest.raises(anthropic.BadRequestError, match=told) as caught:
            await sdk.messages.batches.create(requests=requests)
        assert caught.value.type == "invalid_request_error"
    with pytest.raises(anthropic.AuthenticationError) as unknown:
        await sdk.with_options(api_key="tg-nobody").messages.batches.list()
    assert unknown.value.type == "authentication_error"
    batch = await sdk.messages.batches.create(requests=[request("a")])
    with pytest.raises(anthropic.AnthropicError):
        await sdk.messages.batches.results(batch.id)


async def test_a_budget_that_ends_in_the_middle_ends_the_rest_in_anthropics_words(
    providers: Providers, connect: Connect, run: int
) -> None:
    sdk = await connect(f"thrifty-{run}")
    requests = [request(f"r{number}", f"What does {number} cost?", model="small") for number in range(60)]
    batch = await ended(sdk, await sdk.messages.batches.create(requests=requests))
    found = await results(sdk, batch)
    succeeded = [each for each in found.values() if each.type == "succeeded"]
    errored = [each for each in found.values() if each.type == "errored"]
    assert succeeded
    assert errored
    assert (len(succeeded), len(succeeded) + len(errored)) == (len(providers.small.exchanges), 60)
    assert {each.error.error.type for each in errored} <= {"rate_limit_error", "billing_error"}


async def test_a_batch_outlives_kill_9_without_sending_an_answered_request_again(
    gateway: GatewayProcess, providers: Providers, connect: Connect
) -> None:
    sdk, provider = await connect(), providers.claude
    provider.script(*[Reply()] * 12)
    provider.default = Reply(delay_s=60)  # those that follow are in flight when the gateway is killed
    batch = await sdk.messages.batches.create(
        requests=[request(f"r{number}", f"Question {number}.") for number in range(24)]
    )
    await until(lambda: len(recorded(gateway, batch.id)) == 12)
    await asyncio.to_thread(gateway.kill)
    provider.default = Reply()
    try:
        done = await asyncio.to_thread(recorded, gateway, batch.id)
        before = len(provider.exchanges)
    finally:
        await asyncio.to_thread(gateway.start)
    batch = await ended(sdk, batch)
    again = [each.json["messages"][0]["content"] for each in list(provider.exchanges)[before:]]
    assert len(done) == 12
    assert sorted(again) == sorted(f"Question {number}." for number in range(24) if f"r{number}" not in done)
    assert {each.type for each in (await results(sdk, batch)).values()} == {"succeeded"}
    assert batch.request_counts.succeeded == 24


def recorded(gateway: GatewayProcess, batch_id: str) -> set[str]:
    """Requests that have a result on the disk."""
    files = (gateway.home / "data" / "files").glob(f"file-{batch_id.removeprefix('msgbatch_')}-*")
    lines = b"".join(path.read_bytes() for path in files).splitlines(keepends=True)
    return {orjson.loads(each)["custom_id"] for each in lines if each.endswith(b"\n")}
