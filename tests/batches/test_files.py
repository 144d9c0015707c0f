from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest
from sqlalchemy import func, select

from gateway.batches import files as files_module
from gateway.batches.files import Page
from gateway.errors import BadRequest, BodyTooLarge, NotFound
from gateway.state.sql.tables import files
from tests.batches.conftest import Host, line


async def listing(host: Host) -> list[str]:
    return await asyncio.to_thread(lambda: sorted(os.listdir(host.files.directory)))


async def test_what_is_uploaded_is_kept_and_nothing_else(host: Host) -> None:
    tenant = await host.tenant()
    file = await host.upload(tenant, b"hello\n")
    assert (file.bytes, file.purpose, file.filename) == (6, "batch", "lines.jsonl")
    assert await host.files.get(tenant.viewer, file.id) == file
    async with host.files.upload() as upload:  # left without being kept
        await asyncio.to_thread(upload.write, b"half")
    assert await listing(host) == [file.id]
    assert await asyncio.to_thread(host.files.path(file.id).read_bytes) == b"hello\n"


async def test_an_upload_has_a_largest_size_and_a_team_a_largest_sum(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "MAX_BYTES", 10)
    monkeypatch.setattr(files_module, "TEAM_BYTES", 15)
    tenant = await host.tenant()
    with pytest.raises(BodyTooLarge, match="larger than 10"):
        await host.upload(tenant, b"x" * 11)
    await host.upload(tenant, b"x" * 10)
    with pytest.raises(BodyTooLarge, match="10 of 15"):
        await host.upload(tenant, b"x" * 6)
    await host.upload(await host.tenant("other"), b"x" * 6)
    assert len(await listing(host)) == 2


async def test_another_teams_file_does_not_exist(host: Host) -> None:
    mine, theirs = await host.tenant(), await host.tenant("other")
    file = await host.upload(mine, b"x")
    for attempt in (host.files.get(theirs.viewer, file.id), host.files.delete(theirs.viewer, file.id)):
        with pytest.raises(NotFound):
            await attempt
    assert await host.files.page(theirs.viewer, Page()) == []
    await host.files.delete(mine.viewer, file.id)
    with pytest.raises(NotFound):
        await host.files.get(mine.viewer, file.id)
    assert await listing(host) == []


async def test_lists_come_in_pages(host: Host) -> None:
    tenant = await host.tenant()
    ids = []
    for _ in range(3):
        ids.append((await host.upload(tenant, b"x")).id)
        await asyncio.sleep(0.002)

    async def page(**asked: Any) -> list[str]:
        return [file.id for file in await host.files.page(tenant.viewer, Page(**asked))]

    assert await page() == ids[::-1]
    assert await page(ascending=True) == ids
    assert await page(limit=1) == [ids[2], ids[1]]
    assert await page(after=ids[1]) == [ids[0]]
    assert await page(after=ids[1], ascending=True) == [ids[2]]
    assert await page(purpose="batch_output") == []


async def test_a_file_that_a_batch_reads_is_not_deleted(host: Host) -> None:
    tenant = await host.tenant()
    batch = await host.batch(tenant, line("a"))
    with pytest.raises(BadRequest, match=batch.id):
        await host.files.delete(tenant.viewer, batch.input_file_id)
    await host.run()
    await host.until(batch)
    await host.files.delete(tenant.viewer, batch.input_file_id)


async def test_what_a_crashed_upload_left_is_removed_but_not_what_is_under_way(host: Host) -> None:
    old, young = host.files.path("old.part"), host.files.path("young.part")
    await asyncio.to_thread(lambda: (old.touch(), young.touch(), os.utime(old, (1, 1))))
    await host.files.open()
    assert await listing(host) == ["young.part"]


async def test_a_file_goes_when_its_time_is_over_unless_a_batch_reads_it(host: Host) -> None:
    tenant = await host.tenant()
    batch = await host.batch(tenant, line("a"))
    read = await host.files.get(tenant.viewer, batch.input_file_id)
    async with host.files.upload() as upload:
        short = await host.files.keep(upload, tenant, "x", "batch", 0.0)
    assert [file.id for file in await host.files.page(tenant.viewer, Page())] == [read.id]
    with pytest.raises(NotFound):
        await host.files.get(tenant.viewer, short.id)
    assert await listing(host) == sorted([read.id, short.id])
    await host.files.sweep(time.time())
    assert await listing(host) == [read.id]


async def test_a_file_of_another_host_is_left_to_it_for_a_while(host: Host) -> None:
    tenant = await host.tenant()
    async with host.files.upload() as upload:
        file = await host.files.keep(upload, tenant, "x", "batch", 0.0)
    await asyncio.to_thread(host.files.path(file.id).unlink)

    async def known() -> int:
        query = select(func.count()).select_from(files)
        return await host.database.run(lambda connection: connection.scalar(query) or 0)

    await host.files.sweep(time.time())
    assert await known() == 1
    await host.files.sweep(time.time() + files_module.GONE_S + 1)
    assert await known() == 0
