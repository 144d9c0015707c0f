"""A host: files and batches on a real database, keys, policies, and runners on a pipeline that a test scripts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.admission.load_shedding import LoadShedder
from gateway.batches.batch import Batch
from gateway.batches.files import Files, StoredFile
from gateway.batches.jobs import Jobs
from gateway.batches.message_jobs import MessageJobs
from gateway.batches.runner import Runner
from gateway.domain.tenant import Tenant, Viewer
from gateway.policy.keys import Keys, create
from gateway.policy.load import Policies
from gateway.policy.tenants import Tenants
from gateway.settings.gateway import Ceilings
from gateway.state.sql.database import Database
from tests.batches.fake_pipeline import FakeMemory, FakePipeline
from tests.support.requests import chat_fields
from tests.support.waiting import until

URL = "/v1/chat/completions"


def line(custom_id: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    """A good line, but for what `more` says."""
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": chat_fields(text or custom_id), **more}


def jsonl(*lines: dict[str, Any]) -> bytes:
    return b"".join(orjson.dumps(each) + b"\n" for each in lines)


class MovedClock:
    """Real time, moved by `ahead` seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead

    def monotonic(self) -> float:
        raise AssertionError("batches live longer than a process")


@dataclass
class Host:
    database: Database
    files: Files
    jobs: Jobs
    message_jobs: MessageJobs
    ring: Keys
    tenants: Tenants
    pipeline: FakePipeline = field(default_factory=FakePipeline)
    memory: FakeMemory = field(default_factory=FakeMemory)
    clock: MovedClock = field(default_factory=MovedClock)
    overload: LoadShedder = field(default_factory=lambda: LoadShedder(concurrent=100, lag_s=1.0))
    runners: list[Runner] = field(default_factory=list)

    async def tenant(self, team: str = "search") -> Tenant:
        _, key = await asyncio.to_thread(create, self.database, team)
        await self.ring.refresh()
        return self.tenants.of_key(key.id)

    async def upload(self, tenant: Tenant, data: bytes) -> StoredFile:
        async with self.files.upload() as upload:
            await asyncio.to_thread(upload.write, data)
            return await self.files.keep(upload, tenant, "lines.jsonl", "batch")

    async def batch(self, tenant: Tenant, *lines: dict[str, Any]) -> Batch:
        file = await self.upload(tenant, jsonl(*lines))
        asked = {"input_file_id": file.id, "endpoint": URL, "completion_window": "24h"}
        return await self.jobs.create(tenant, asked)

    async def run(self) -> Runner:
        """A runner as another process would have it."""
        runner = Runner(
            self.jobs, self.files, self.pipeline, self.tenants, self.overload, self.memory,
            deadline_s=5, tick_s=0.01, wait_s=0.01, clock=self.clock,
        )  # type: ignore[arg-type]  # fmt: skip
        self.runners.append(runner)
        await runner.open()
        return runner

    async def until(self, batch: Batch, done: Callable[[Batch], bool] = lambda batch: bool(batch.finished_at)) -> Batch:
        async def found() -> Batch | None:
            now = await self.jobs.get(Viewer(batch.team), batch.id)
            return now if done(now) else None

        return await until(found)

    async def results(self, batch: Batch, file_id: str | None) -> dict[str, Any]:
        """custom_id → result, of a file that the batch's team can see."""
        if file_id is None:
            return {}
        file = await self.files.get(Viewer(batch.team), file_id)
        data = await asyncio.to_thread(self.files.path(file.id).read_bytes)
        assert file.bytes == len(data)
        found = [orjson.loads(each) for each in data.splitlines()]
        assert len({each["custom_id"] for each in found}) == len(found)
        return {each["custom_id"]: each for each in found}


@pytest.fixture
async def host(any_database: Database, tmp_path: Path) -> AsyncIterator[Host]:
    database = any_database
    files = Files(tmp_path / "data" / "files", database)
    await files.open()
    ring = Keys(database)
    tenants = Tenants(ring, await asyncio.to_thread(Policies, [], Ceilings()))
    jobs = Jobs(database, files, max_line_bytes=10_000, max_line_items=1000)
    message_jobs = MessageJobs(database, files, max_line_bytes=10_000, max_line_items=1000)
    host = Host(database, files, jobs, message_jobs, ring, tenants)
    yield host
    for runner in host.runners:
        await runner.aclose()
