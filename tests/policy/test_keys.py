from __future__ import annotations

import asyncio
import re
import time

import pytest
from sqlalchemy import event

from gateway.errors import ExpiredKey, InvalidKey, Overloaded
from gateway.policy import keys
from gateway.policy.keys import Keys
from gateway.policy.load import Policies
from gateway.policy.tenants import Tenants
from gateway.settings.gateway import Ceilings
from gateway.state.sql.database import Database
from tests.support.waiting import until


@pytest.fixture
def tenants(database: Database) -> tuple[Tenants, Keys]:
    ring = Keys(database)
    return Tenants(ring, Policies([], Ceilings())), ring


async def test_a_new_key_stands_for_its_team(database: Database, tenants: tuple[Tenants, Keys]) -> None:
    door, ring = tenants
    secret, key = await asyncio.to_thread(keys.create, database, "search", name="app")
    assert re.fullmatch(r"tg-[A-Za-z0-9_-]{32,}", secret)
    await ring.refresh()
    tenant = door.authenticate(secret.encode())
    assert (tenant.team, tenant.key.id, tenant.policy.team) == ("search", key.id, "search")


async def test_the_newest_keys_are_one_of_each_team_and_may_ask_for_completions(
    database: Database, tenants: tuple[Tenants, Keys]
) -> None:
    _, ring = tenants
    assert ring.newest(4) == []
    made = []
    for team, scope in (("a", "inference"), ("b", "inference"), ("a", "inference"), ("c", "admin"), ("d", "inference")):
        made.append((await asyncio.to_thread(keys.create, database, team, scopes=(scope,)))[1].lineage)
    await ring.refresh()
    assert ring.newest(4) == [made[4], made[2], made[1]]
    assert ring.newest(1) == [made[4]]


async def test_the_secret_is_nowhere_in_the_database(database: Database) -> None:
    secret, _ = await asyncio.to_thread(keys.create, database, "search")
    rows = await asyncio.to_thread(keys.listing, database)
    assert secret not in repr(rows)
    assert "digest" not in rows[0]


async def test_an_unknown_key_is_refused(tenants: tuple[Tenants, Keys]) -> None:
    door, ring = tenants
    with pytest.raises(Overloaded):
        door.authenticate(b"tg-early")
    await ring.refresh()
    with pytest.raises(InvalidKey):
        door.authenticate(b"tg-wrong")


async def test_a_key_that_was_just_created_is_found_though_the_snapshot_is_older(
    database: Database, tenants: tuple[Tenants, Keys]
) -> None:
    door, ring = tenants
    await ring.refresh()
    secret, key = await asyncio.to_thread(keys.create, database, "search")
    found = await asyncio.gather(*(door.find(secret.encode()) for _ in range(20)))
    assert {tenant.key.id for tenant in found} == {key.id}


async def test_unknown_keys_cannot_occupy_the_database(database: Database, tenants: tuple[Tenants, Keys]) -> None:
    door, ring = tenants
    await ring.refresh()
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))

    async def guess(number: int) -> None:
        for secret in (f"tg-wrong-{number}", f"tg-wrong-{number}-again"):
            with pytest.raises(InvalidKey):
                await door.find(secret.encode())

    began = time.monotonic()
    await asyncio.gather(*(guess(number) for number in range(200)))
    # A busy machine may stop this process between two reads, so that the time does not cover all of them.
    assert len(statements) <= 10 + (time.monotonic() - began) / keys.CATCH_UP_EVERY_S
    statements.clear()
    with pytest.raises(InvalidKey):
        await door.find(b"the key of another vendor")
    assert not statements


async def test_a_revoked_key_ends(database: Database, tenants: tuple[Tenants, Keys]) -> None:
    door, ring = tenants
    secret, key = await asyncio.to_thread(keys.create, database, "search")
    await ring.refresh()
    door.authenticate(secret.encode())
    assert await asyncio.to_thread(keys.revoke, database, key.id)
    await ring.refresh()
    with pytest.raises(ExpiredKey, match="was revoked"):
        door.authenticate(secret.encode())
    assert not await asyncio.to_thread(keys.revoke, database, key.id)


async def test_a_worker_that_starts_later_tells_a_revoked_key_from_an_unknown_one(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    secret, key = await asyncio.to_thread(keys.create, database, "search")
    await asyncio.to_thread(keys.revoke, database, key.id)
    ring = Keys(database)
    door = Tenants(ring, Policies([], Ceilings()), kept_in="the data directory")
    await ring.refresh()
    with pytest.raises(ExpiredKey):
        await door.find(secret.encode())
    assert "not among those" not in caplog.text  # the key is of this directory
    with pytest.raises(InvalidKey) as unknown:
        await door.find(b"tg-unknown")
    assert not isinstance(unknown.value, ExpiredKey)
    assert "not among those" in caplog.text


async def test_an_expired_key_is_told_so(database: Database, tenants: tuple[Tenants, Keys]) -> None:
    door, ring = tenants
    secret, _ = await asyncio.to_thread(keys.create, database, "search", expires_at=time.time() - 1)
    await ring.refresh()
    with pytest.raises(ExpiredKey):
        door.authenticate(secret.encode())


async def test_a_rotated_key_keeps_working_for_its_grace(database: Database, tenants: tuple[Tenants, Keys]) -> None:
    door, ring = tenants
    old, key = await asyncio.to_thread(keys.create, database, "search", scopes=("usage", "inference"))
    made = await asyncio.to_thread(lambda: keys.rotate(database, key.id, grace_s=60))
    assert made is not None
    await ring.refresh()
    assert door.authenticate(old.encode()).key.id == key.id
    fresh = door.authenticate(made[0].encode())
    assert fresh.key.scopes == {"usage", "inference"}


async def test_keys_that_replace_each_other_are_of_one_lineage_and_stand_for_what_the_first_asked_for(
    database: Database, tenants: tuple[Tenants, Keys]
) -> None:
    door, ring = tenants
    _, first = await asyncio.to_thread(keys.create, database, "search", name="app")
    second = await asyncio.to_thread(lambda: keys.rotate(database, first.id, grace_s=60))
    assert second is not None
    third = await asyncio.to_thread(keys.rotate, database, second[1].id)
    assert third is not None
    assert [key.lineage for key in (first, second[1], third[1])] == [first.id] * 3
    await ring.refresh()
    assert door.of_key(first.id) is door.authenticate(third[0].encode())
    kept = {row["id"]: row["lineage"] for row in await asyncio.to_thread(keys.listing, database)}
    assert kept == dict.fromkeys((first.id, second[1].id, third[1].id), first.id)
    assert await asyncio.to_thread(keys.rotate, database, first.id) is None  # it was replaced already
    _, other = await asyncio.to_thread(keys.create, database, "search", name="app")
    assert other.lineage == other.id


async def test_a_running_gateway_hears_of_a_key_within_a_second(
    database: Database, tenants: tuple[Tenants, Keys]
) -> None:
    door, ring = tenants
    following = asyncio.get_running_loop().create_task(ring.follow())
    try:
        secret, _ = await asyncio.to_thread(keys.create, database, "search")
        await until(lambda: door.authenticate(secret.encode()), not_yet=(InvalidKey, Overloaded))
    finally:
        following.cancel()


async def test_a_batch_of_a_key_that_this_worker_has_not_read_yet_is_not_refused(
    database: Database, tenants: tuple[Tenants, Keys]
) -> None:
    door, ring = tenants
    await asyncio.to_thread(keys.create, database, "other")
    await ring.refresh()
    secret, key = await asyncio.to_thread(keys.create, database, "search")
    with pytest.raises(ExpiredKey):
        door.of_key(key.id)
    assert await door.find_of_key(key.id) is door.authenticate(secret.encode())
    await asyncio.to_thread(keys.revoke, database, key.id)
    await ring.refresh()
    with pytest.raises(ExpiredKey, match=key.id):
        await door.find_of_key(key.id)


async def test_what_a_key_asked_for_earlier_is_done_under_the_policy_of_now_or_not_at_all(
    database: Database, tenants: tuple[Tenants, Keys]
) -> None:
    door, ring = tenants
    secret, key = await asyncio.to_thread(keys.create, database, "search")
    with pytest.raises(Overloaded):
        door.of_key(key.id)
    await ring.refresh()
    assert door.of_key(key.id) is door.authenticate(secret.encode())
    await asyncio.to_thread(keys.revoke, database, key.id)
    await ring.refresh()
    with pytest.raises(ExpiredKey, match=key.id):
        door.of_key(key.id)


async def test_it_tells_how_old_its_keys_are(database: Database, tenants: tuple[Tenants, Keys]) -> None:
    ring = tenants[1]
    await asyncio.sleep(0.15)
    assert float(ring.stats()["age_s"]) >= 0.1
    await ring.refresh()
    assert ring.age_s < 0.1
