"""Stored responses belong to one team and go when their time is over."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import func, select

from gateway.domain.tenant import Viewer
from gateway.responses import store
from gateway.responses.store import KEPT_S, Responses
from gateway.state.sql.database import Database
from gateway.state.sql.tables import response_items, responses
from tests.responses.samples import answer, stored, tenant
from tests.support.waiting import until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def count(database: Database) -> tuple[int, int]:
    """Rows of both tables."""
    return await database.run(
        lambda link: (
            link.scalar(select(func.count()).select_from(responses)) or 0,
            link.scalar(select(func.count()).select_from(response_items)) or 0,
        )
    )


async def test_what_was_put_is_found_as_it_was(any_database: Database) -> None:
    room = Responses(any_database)
    given = stored("resp_1", answer("msg_1", "año 🌈"))
    assert await room.put(tenant("search"), given)
    assert await room.find(tenant("search").viewer, "resp_1") == given
    assert given.conversation == [*given.input, answer("msg_1", "año 🌈")]


async def test_another_team_finds_neither_response_nor_items_and_deletes_nothing(any_database: Database) -> None:
    room = Responses(any_database)
    await room.put(tenant("search"), stored())
    assert await room.find(tenant("strangers").viewer, "resp_1") is None
    assert await room.items(tenant("strangers").viewer, ["msg_1"]) == {}
    assert not await room.delete(tenant("strangers").viewer, "resp_1")
    assert await room.find(tenant("search").viewer, "resp_1") is not None


async def test_two_teams_may_have_the_same_id(any_database: Database) -> None:
    room = Responses(any_database)
    await room.put(tenant("a"), stored("resp_1", answer(text="of a")))
    await room.put(tenant("b"), stored("resp_1", answer(text="of b")))
    assert (await room.items(tenant("a").viewer, ["msg_1"]))["msg_1"]["content"][0]["text"] == "of a"
    assert (await room.items(tenant("b").viewer, ["msg_1"]))["msg_1"]["content"][0]["text"] == "of b"


async def test_two_keys_of_a_team_may_have_been_served_the_same_items(any_database: Database) -> None:
    room = Responses(any_database)
    mine, theirs = tenant("search", key="key_mine"), tenant("search", key="key_theirs")
    await room.put(mine, stored("resp_1"))
    await room.put(theirs, stored("resp_2"))
    await room.put(theirs, stored("resp_3"))
    for who, own, others in ((mine, "resp_1", "resp_2"), (theirs, "resp_2", "resp_1")):
        assert await room.items(who.viewer, ["msg_1"]) == {"msg_1": answer()}
        assert await room.find(who.viewer, own) is not None
        assert await room.find(who.viewer, others) is None
        assert not await room.delete(who.viewer, others)
    assert await room.delete(mine.viewer, "resp_1")
    assert await room.items(mine.viewer, ["msg_1"]) == {}
    assert await room.items(Viewer("search"), ["msg_1"]) == {"msg_1": answer()}


async def test_the_first_of_an_id_stays(any_database: Database) -> None:
    room = Responses(any_database)
    await room.put(tenant("search"), stored("resp_1", answer(text="first")))
    await room.put(tenant("search"), stored("resp_1", answer(text="second")))
    found = await room.find(tenant("search").viewer, "resp_1")
    assert found is not None
    assert found.body["output"][0]["content"][0]["text"] == "first"


async def test_items_are_found_by_their_ids(any_database: Database) -> None:
    room = Responses(any_database)
    await room.put(tenant("search"), stored("resp_1", answer("msg_1"), {"id": "fc_1", "type": "function_call"}))
    await room.put(tenant("search"), stored("resp_2", answer("msg_2")))
    found = await room.items(tenant("search").viewer, ["fc_1", "msg_2", "msg_3"])
    assert found == {"fc_1": {"id": "fc_1", "type": "function_call"}, "msg_2": answer("msg_2")}


async def test_what_is_deleted_is_gone_with_its_items(any_database: Database) -> None:
    room = Responses(any_database)
    await room.put(tenant("search"), stored())
    assert await room.delete(tenant("search").viewer, "resp_1")
    assert not await room.delete(tenant("search").viewer, "resp_1")
    assert await count(any_database) == (0, 0)


async def test_what_is_past_its_time_is_not_found_and_then_cleared_away(database: Database) -> None:
    clock = Clock()
    room = Responses(database, clock)
    await room.put(tenant("search"), stored("resp_1"))
    clock.now += KEPT_S / 2
    await room.put(tenant("search"), stored("resp_2", answer("msg_2")))
    clock.now += KEPT_S / 2 + 1
    assert await room.find(tenant("search").viewer, "resp_1") is None
    await room.open()
    await until(lambda: room.stats()["expired"] == 1)
    await room.aclose()
    assert await count(database) == (1, 1)
    assert await room.find(tenant("search").viewer, "resp_2") is not None


async def test_a_team_that_stores_too_much_loses_its_oldest(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    room = Responses(database, clock)
    for number in range(6):
        clock.now += 1
        await room.put(tenant("search"), stored(f"resp_{number}", answer(f"msg_{number}")))
    await room.put(tenant("others"), stored())
    held = await database.run(
        lambda link: link.scalar(select(func.sum(responses.c.bytes)).where(responses.c.team == "search"))
    )
    monkeypatch.setattr(store, "TEAM_BYTES", int(held or 0) // 2)
    await room.open()
    await until(lambda: room.stats()["expired"] == 3)
    await room.aclose()
    left = [await room.find(tenant("search").viewer, f"resp_{number}") is not None for number in range(6)]
    assert left == [False] * 3 + [True] * 3
    assert await room.find(tenant("others").viewer, "resp_1") is not None


async def test_what_is_too_large_is_not_kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 400)
    room = Responses(database)
    assert not await room.put(tenant("search"), stored("resp_1", answer(text="long " * 100)))
    assert not await room.put(tenant("search"), stored("resp_" + "9" * 200))
    assert room.stats()["unstored"] == 2


async def test_tidying_goes_on_when_the_database_was_away(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "TIDY_S", 0.01)
    clock = Clock()
    room = Responses(database, clock)
    await asyncio.to_thread(responses.drop, database.engine)
    await room.open()
    await asyncio.sleep(0.05)
    await asyncio.to_thread(responses.create, database.engine)
    await room.put(tenant("search"), stored())
    clock.now += KEPT_S + 1
    await until(lambda: room.stats()["expired"] == 1)
    await room.aclose()
