"""Batches over the real pipeline: what the ledger and a busy backend make of their lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.admission.load_shedding import LoadShedder
from gateway.batches.batch import Batch
from gateway.batches.files import Files
from gateway.batches.jobs import Jobs
from gateway.batches.run import LINES
from gateway.batches.runner import Runner
from gateway.domain.tenant import Tenant, Viewer
from gateway.policy.keys import Keys, create
from gateway.policy.load import Policies
from gateway.policy.tenants import Tenants
from gateway.responses.memory import StoredContext
from gateway.responses.store import Responses
from gateway.settings.gateway import Ceilings
from gateway.state.redis.connection import State
from gateway.state.sql.database import Database
from tests.batches.conftest import URL, jsonl, line
from tests.fakes.gateway import InProcessGateway, backend, open_gateway, tenant
from tests.fakes.provider import Fail, Reply
from tests.support.requests import chat_fields, small_request
from tests.support.waiting import until

POLICY = "team: search\ncache: {enabled: false}\n"


@dataclass
class Night:
    gateway: InProcessGateway
    jobs: Jobs
    files: Files
    tenant: Tenant

    async def start(self, *texts: str) -> Batch:
        """A line for each, for a backend that serves one request at a time."""

        def asking(text: str) -> dict[str, Any]:
            return line(text, body=chat_fields(text, model="narrow"))

        async with self.files.upload() as upload:
            await asyncio.to_thread(upload.write, jsonl(*map(asking, texts)))
            file = await self.files.keep(upload, self.tenant, "lines.jsonl", "batch")
        asked = {"input_file_id": file.id, "endpoint": URL, "completion_window": "24h"}
        return await self.jobs.create(self.tenant, asked)

    async def ended(self, batch: Batch) -> Batch:
        async def finished() -> Batch | None:
            found = await self.jobs.get(Viewer(batch.team), batch.id)
            return found if found.finished_at else None

        return await until(finished)


@pytest.fixture
async def night(state: State, database: Database, tmp_path: Path) -> AsyncIterator[Night]:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "search.yaml").write_text(POLICY)
    files = Files(tmp_path / "files", database)
    await files.open()
    _, key = await asyncio.to_thread(create, database, "search")
    ring = Keys(database)
    await ring.refresh()
    tenants = Tenants(ring, await asyncio.to_thread(Policies, [folder], Ceilings()))
    async with open_gateway(
        state,
        database,
        tmp_path,
        more=lambda provider: (backend(provider, "narrow", concurrent=1),),
    ) as gateway:
        jobs = Jobs(database, files, max_line_bytes=10_000, max_line_items=1000)
        overload = LoadShedder(concurrent=100, lag_s=1.0)
        memory = StoredContext(Responses(database), 20_000)
        runner = Runner(
            jobs, files, gateway.pipeline, tenants, overload, memory, deadline_s=10, tick_s=0.01, wait_s=0.01
        )
        await runner.open()
        yield Night(gateway, jobs, files, tenants.of_key(key.id))
        await runner.aclose()


async def test_an_interactive_request_overtakes_the_lines_that_wait(night: Night) -> None:
    provider = night.gateway.provider
    provider.default = Reply(delay_s=0.2)
    batch = await night.start(*(f"line {number}" for number in range(LINES * 2)))
    narrow = night.gateway.fleet.backends[1]
    await until(lambda: night.gateway.fleet.state(narrow).in_flight >= 1)
    await until(lambda: night.gateway.pipeline.telemetry.totals.in_flight >= LINES)
    await night.gateway.read(small_request("I am in a hurry", model="narrow"), tenant("key_2", "people"))
    texts = [exchange.json["messages"][0]["content"] for exchange in provider.exchanges]
    assert texts.index("I am in a hurry") < LINES  # in turn it would come after the lines that were there before it
    provider.default = Reply()
    assert (await night.ended(batch)).completed == LINES * 2


async def test_every_attempt_of_a_line_is_a_row_of_the_ledger(night: Night) -> None:
    night.gateway.provider.script(Reply(), Fail(500, "not now"), Fail(422, "never"))
    batch = await night.ended(await night.start("a", "b", "c", "d"))
    assert (batch.completed, batch.failed) == (3, 1)
    rows = await night.gateway.rows()
    assert sorted(row["outcome"] for row in rows) == ["failed", "failed", "ok", "ok", "ok"]
    for row in rows:
        assert orjson.loads(row["tags"]) == {"batch": batch.id}
        assert (row["team"], row["key_id"]) == ("search", night.tenant.key.id)
        assert bool(row["cost_pico"]) == (row["outcome"] == "ok")
    assert len({row["id"] for row in rows}) == len(night.gateway.provider.exchanges) == 5
