from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from gateway.batches import batch as batch_module
from gateway.batches.batch import Batch
from gateway.batches.files import Page
from gateway.batches.forms import FORMS, MESSAGES
from gateway.domain.tenant import Tenant, Viewer
from gateway.errors import BadRequest, LimitExceeded, NotFound
from tests.batches.conftest import Host, jsonl, line
from tests.support.requests import fields_in
from tests.support.waiting import until

DAY_S = 24 * 3600


def request(custom_id: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    """A good one, but for what `more` says of its parameters."""
    params = fields_in("anthropic_messages", text or custom_id, **{"max_tokens": 9, **more})
    return {"custom_id": custom_id, "params": params}


async def made(host: Host, tenant: Tenant, *requests: dict[str, Any]) -> Batch:
    async with host.files.upload() as upload:
        await asyncio.to_thread(upload.write, jsonl(*requests))
        return await host.message_jobs.create(tenant, upload, {"x-thriftgate-tags": "night=7"})


async def ended(host: Host, batch: Batch) -> Batch:
    async def finished() -> Batch | None:
        found = await host.message_jobs.get(Viewer(batch.team), batch.id)
        return found if found.finished_at else None

    return await until(finished)


async def results(host: Host, batch: Batch) -> dict[str, Any]:
    pieces = await host.message_jobs.results(Viewer(batch.team), batch.id)
    data = await asyncio.to_thread(lambda: b"".join(pieces))
    found = [orjson.loads(each) for each in data.splitlines()]
    assert len(found) == batch.total
    return {each["custom_id"]: each["result"] for each in found}


async def bytes_left(host: Host) -> list[str]:
    return await asyncio.to_thread(lambda: sorted(path.name for path in host.files.directory.glob("file-*")))


async def left_alone(host: Host, *names: str | None) -> None:
    """Wait until nothing else is on the disk: the runner clears up after it has told of the end."""
    expected = sorted(name for name in names if name)

    async def nothing_else() -> bool:
        return await bytes_left(host) == expected

    await until(nothing_else)


async def test_every_request_has_a_result_and_no_file_is_seen(host: Host) -> None:
    tenant = await host.tenant()
    host.pipeline.script["b"] = [BadRequest("nonsense", param="messages")]
    batch = await made(host, tenant, request("a"), request("b"), request("c", max_tokens="many"))
    assert (batch.status, batch.total) == ("validating", 3)
    assert await host.files.page(tenant.viewer, Page()) == []
    with pytest.raises(NotFound):
        await host.files.get(tenant.viewer, batch.input_file_id)
    with pytest.raises(NotFound, match="not ended"):
        await host.message_jobs.results(tenant.viewer, batch.id)
    await host.run()
    batch = await ended(host, batch)
    assert (batch.status, batch.completed, batch.failed, batch.unsent) == ("completed", 1, 2, 0)
    found = await results(host, batch)
    assert found["a"] == {"type": "succeeded", "message": {"said": "a", "team": "search"}}
    assert found["b"]["type"] == "errored"
    assert found["b"]["error"]["error"]["type"] == "invalid_request_error"
    assert found["c"]["error"]["error"]["message"].startswith("max_tokens")
    assert host.pipeline.records[0].tags == {"batch": batch.id, "night": "7"}
    assert await host.files.page(tenant.viewer, Page()) == []
    for file_id in (batch.output_file_id, batch.error_file_id):
        with pytest.raises(NotFound):
            await host.files.get(tenant.viewer, file_id or "")
    await left_alone(host, batch.output_file_id, batch.error_file_id)


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        ([{"custom_id": "a"}], "requests.0.params: params must be an object"),
        ([request("a"), request("b!")], "requests.1.custom_id: custom_id must be a string that matches"),
        ([request("a"), request("x" * 65)], "requests.1.custom_id"),
        ([request("a"), request("a")], "requests.1.custom_id: custom_id 'a' is already used by requests.0"),
        ([request("a", "x" * 20_000)], "requests.0: This is longer than 10000 bytes"),
    ],
)
async def test_what_is_no_request_is_told_with_its_place(host: Host, requests: list[Any], told: str) -> None:
    with pytest.raises(BadRequest) as caught:
        await made(host, await host.tenant(), *requests)
    assert caught.value.message.startswith(told)
    assert await bytes_left(host) == []


async def test_requests_have_a_largest_number(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FORMS[MESSAGES], "most", 1)
    with pytest.raises(BadRequest, match="requests: There are more than 1"):
        await made(host, await host.tenant(), request("a"), request("b"))


async def test_a_team_has_only_so_many_unfinished_batches_of_both_kinds(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "MOST_OPEN", 1)
    tenant = await host.tenant()
    batch = await host.batch(tenant, line("a"))
    with pytest.raises(LimitExceeded):
        await made(host, tenant, request("a"))
    assert await bytes_left(host) == [batch.input_file_id]


async def test_neither_other_teams_nor_the_other_vendors_clients_see_a_batch(host: Host) -> None:
    mine, theirs = await host.tenant(), await host.tenant("other")
    batch, other = await made(host, mine, request("a")), await host.batch(mine, line("a"))
    await host.run()
    await ended(host, batch)
    for attempt in (
        host.message_jobs.get(theirs.viewer, batch.id),
        host.message_jobs.cancel(theirs.viewer, batch.id),
        host.message_jobs.delete(theirs.viewer, batch.id),
        host.message_jobs.results(theirs.viewer, batch.id),
        host.message_jobs.get(mine.viewer, other.id),
        host.message_jobs.cancel(mine.viewer, other.id),
        host.jobs.get(mine.viewer, batch.id),
        host.jobs.cancel(mine.viewer, batch.id),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert [found.id for found in await host.jobs.page(mine.viewer, Page())] == [other.id]
    assert [found.id for found in await host.message_jobs.page(mine.viewer, Page())] == [batch.id]
    assert await host.message_jobs.page(theirs.viewer, Page()) == []


async def test_a_cancelled_batch_tells_what_was_not_sent_also_after_a_restart(host: Host) -> None:
    gate = asyncio.Event()
    host.pipeline.script |= {f"q{number}": [gate] for number in range(2, 12)}
    batch = await made(host, await host.tenant(), *(request(f"q{number}") for number in range(12)))
    await host.run()
    await until(lambda: "q5" in host.pipeline.asked)
    cancelling = await host.message_jobs.cancel(Viewer(batch.team), batch.id)
    assert cancelling.status == "cancelling"
    assert (await host.message_jobs.cancel(Viewer(batch.team), batch.id)).cancelling_at == cancelling.cancelling_at
    await asyncio.sleep(0.05)
    gate.set()
    batch = await ended(host, batch)
    found = await results(host, batch)
    assert (batch.status, batch.completed, batch.failed, batch.unsent) == ("cancelled", 6, 6, 6)
    assert {name for name, each in found.items() if each == {"type": "canceled"}} == {f"q{n}" for n in range(6, 12)}
    with pytest.raises(BadRequest, match="cancelled"):
        await host.message_jobs.cancel(Viewer(batch.team), batch.id)


async def test_an_expired_batch_tells_so(host: Host) -> None:
    host.clock.ahead = DAY_S + 1
    batch = await made(host, await host.tenant(), request("a"), request("b"))
    await host.run()
    batch = await ended(host, batch)
    assert (batch.status, batch.unsent) == ("expired", 2)
    assert await results(host, batch) == {"a": {"type": "expired"}, "b": {"type": "expired"}}
    assert host.pipeline.asked == []


async def test_a_batch_is_deleted_with_its_results_once_it_has_ended(host: Host) -> None:
    batch = await made(host, tenant := await host.tenant(), request("a"))
    with pytest.raises(BadRequest, match="cancel it first"):
        await host.message_jobs.delete(tenant.viewer, batch.id)
    await host.run()
    await ended(host, batch)
    await host.message_jobs.delete(tenant.viewer, batch.id)
    with pytest.raises(NotFound):
        await host.message_jobs.get(tenant.viewer, batch.id)
    await left_alone(host)


async def test_results_are_kept_for_29_days(host: Host) -> None:
    batch = await made(host, await host.tenant(), request("a"))
    runner = await host.run()
    batch = await ended(host, batch)
    await left_alone(host, batch.output_file_id)
    await runner.aclose()
    host.clock.ahead = 29 * DAY_S + 1
    await host.run()
    await left_alone(host)
    with pytest.raises(NotFound):
        await host.message_jobs.results(Viewer(batch.team), batch.id)
    assert (await host.message_jobs.get(Viewer(batch.team), batch.id)).completed == 1
