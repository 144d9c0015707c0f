from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.policy import watch
from gateway.policy.watch import Dates, changes, dates


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_S", 0.005)
    monkeypatch.setattr(watch, "RESTS", 1)


async def now(*folders: Path) -> Dates:
    return await asyncio.to_thread(dates, folders)


async def next_change(items: AsyncIterator[None]) -> None:
    async with asyncio.timeout(30):
        await anext(items)


async def test_a_file_that_is_written_replaced_or_removed_is_noticed(tmp_path: Path) -> None:
    items = changes([tmp_path], await now(tmp_path))
    file = tmp_path / "a.yaml"
    file.write_text("team: a")
    await next_change(items)
    (tmp_path / "new").write_text("team: b")
    os.replace(tmp_path / "new", file)
    await next_change(items)
    file.unlink()
    await next_change(items)


async def test_what_changed_before_the_first_look_is_noticed(tmp_path: Path) -> None:
    known = await now(tmp_path)
    (tmp_path / "a.yml").write_text("team: a")
    await next_change(changes([tmp_path], known))


async def test_a_mounted_folder_whose_link_turns_is_noticed(tmp_path: Path) -> None:
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text("team: a")
    folder = tmp_path / "mounted"
    folder.mkdir()
    (folder / "..data").symlink_to(tmp_path / "one")
    (folder / "a.yaml").symlink_to("..data/a.yaml")
    items = changes([folder], await now(folder))
    (folder / "..new").symlink_to(tmp_path / "two")
    (folder / "..new").rename(folder / "..data")
    await next_change(items)


async def test_other_files_and_a_folder_that_has_gone_are_nobodys_business(tmp_path: Path) -> None:
    known = await now(tmp_path, tmp_path / "gone")
    (tmp_path / "notes.txt").write_text("x")
    assert await now(tmp_path, tmp_path / "gone") == known == {}
