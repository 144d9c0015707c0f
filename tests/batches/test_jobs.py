from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.batches import batch as batch_module
from gateway.batches.batch import Ended
from gateway.batches.files import Page
from gateway.domain.tenant import Viewer
from gateway.errors import BadRequest, LimitExceeded, NotFound
from tests.batches.conftest import URL, Host, jsonl, line


async def test_a_batch_is_made_of_good_lines(host: Host) -> None:
    tenant = await host.tenant()
    batch = await host.batch(tenant, line("a"), line("b"))
    assert await host.jobs.get(tenant.viewer, batch.id) == batch
    assert (batch.status, batch.total, batch.key_id) == ("validating", 2, tenant.key.id)
    assert batch.expires_at - batch.created_at == 24 * 3600
    assert await host.jobs.page(tenant.viewer, Page()) == [batch]
    assert await host.jobs.unfinished() == [batch]


async def test_a_bad_line_fails_the_batch_and_is_told_with_its_number(host: Host) -> None:
    batch = await host.batch(await host.tenant(), line("a"), line("b", method="GET"))
    assert batch.status == "failed"
    assert batch.finished_at is not None
    (problem,) = orjson.loads(batch.errors or "")
    assert problem["line"] == 2
    assert await host.jobs.unfinished() == []


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input_file_id": None}, "input_file_id"),
        ({"endpoint": "/v1/images"}, "endpoint"),
        ({"endpoint": []}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"output_expires_after": 7}, "output_expires_after"),
        ({"output_expires_after": {"anchor": "ended_at", "seconds": 3600}}, "output_expires_after.anchor"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}}, "output_expires_after.seconds"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": True}}, "output_expires_after.seconds"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
    ],
)
async def test_a_request_that_makes_no_sense_is_told_so(host: Host, change: dict[str, Any], param: str) -> None:
    tenant = await host.tenant()
    file = await host.upload(tenant, jsonl(line("a")))
    asked = {"input_file_id": file.id, "endpoint": URL, "completion_window": "24h", "metadata": {"a": "b"}}
    with pytest.raises(BadRequest) as caught:
        await host.jobs.create(tenant, asked | change)
    assert caught.value.param == param


async def test_another_teams_batch_and_file_do_not_exist(host: Host) -> None:
    mine, theirs = await host.tenant(), await host.tenant("other")
    batch = await host.batch(mine, line("a"))
    asked = {"input_file_id": batch.input_file_id, "endpoint": URL, "completion_window": "24h"}
    for attempt in (
        host.jobs.get(theirs.viewer, batch.id),
        host.jobs.cancel(theirs.viewer, batch.id),
        host.jobs.create(theirs, asked),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert await host.jobs.page(theirs.viewer, Page()) == []


async def test_results_are_no_input(host: Host) -> None:
    tenant = await host.tenant()
    batch = await host.batch(tenant, line("a"))
    await host.run()
    batch = await host.until(batch)
    asked = {"input_file_id": batch.output_file_id, "endpoint": URL, "completion_window": "24h"}
    with pytest.raises(BadRequest, match="batch_output"):
        await host.jobs.create(tenant, asked)


async def test_an_end_is_final(host: Host) -> None:
    batch = await host.batch(await host.tenant(), line("a"))
    assert (await host.jobs.cancel(Viewer(batch.team), batch.id)).status == "cancelling"
    await host.jobs.finish(batch, Ended("cancelled", counts=(0, 1), unsent=1))
    with pytest.raises(BadRequest, match="cancelled"):
        await host.jobs.cancel(Viewer(batch.team), batch.id)
    assert not await host.jobs.begin(batch)
    await host.jobs.finish(batch, Ended("completed", {"output": 5}, (1, 0)))
    ended = await host.jobs.get(Viewer(batch.team), batch.id)
    assert (ended.status, ended.failed, ended.output_file_id) == ("cancelled", 1, None)


async def test_a_team_has_only_so_many_unfinished_batches(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MOST_OPEN", 1)
    tenant = await host.tenant()
    await host.batch(tenant, line("a"))
    with pytest.raises(LimitExceeded):
        await host.batch(tenant, line("a"))
    await host.batch(await host.tenant("other"), line("a"))
