"""End users are pseudonyms on the ledger; their names are kept only where a policy says so, and can be erased."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from gateway.domain.end_user import Pseudonyms, named
from gateway.domain.policy import DataPolicy
from gateway.domain.tenant import Tenant
from gateway.domain.text.truncation import cut_apart
from gateway.ledger.store import anchor
from gateway.ledger.store.end_users import EndUsers, forget, rows_of, secret
from gateway.ledger.store.sums import snapshot
from gateway.ledger.store.verify import verify
from gateway.state.sql.database import Database
from gateway.state.sql.tables import end_users
from tests.ledger.samples import record, row, write

SECRET = b"s" * 32


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({}, ""),
        ({"user": "ada"}, "ada"),
        ({"user": "ada", "safety_identifier": "hashed"}, "hashed"),
        ({"metadata": {"user_id": "ada"}}, "ada"),
        ({"metadata": {"user_id": "user_1_account_2_session_3"}}, "user_1_account_2"),
        ({"metadata": "ada"}, ""),
        ({"user": 7}, ""),
        ({"user": None, "metadata": None}, ""),
        ({"prompt_cache_key": "ada"}, ""),
        ({"user": "a" * 9999}, cut_apart("a" * 9999, 512)),
    ],
)
def test_who_a_request_is_for(body: dict[str, Any], name: str) -> None:
    assert named(body) == name


def test_only_who_has_the_secret_knows_the_pseudonym() -> None:
    assert Pseudonyms(SECRET).of("ada") == Pseudonyms(SECRET).of("ada")
    others = {Pseudonyms(b"t" * 32).of("ada"), Pseudonyms(SECRET).of("bob"), Pseudonyms(SECRET).of("\ud800")}
    assert len(others | {Pseudonyms(SECRET).of("ada")}) == 4
    assert len(Pseudonyms(SECRET).of("ada")) <= 32


def test_all_processes_have_the_same_secret(tmp_path: Path) -> None:
    path = tmp_path / "new" / "pseudonyms.key"
    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(lambda _: secret(path), range(8)))
    assert len(made) == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def kept(database: Database) -> dict[tuple[str, str], str | None]:
    with database.read() as connection:
        rows = connection.execute(select(end_users.c.pseudonym, end_users.c.team, end_users.c.name))
        return {(row.pseudonym, row.team): row.name for row in rows}


def asking(team: str, *, store: bool) -> Any:
    entry = record(team)
    policy = entry.tenant.policy.model_copy(update={"data": DataPolicy(store_end_users=store)})
    entry.tenant = Tenant(entry.tenant.key, policy)
    return entry


async def test_names_are_kept_where_the_policy_says_so(any_database: Database, tmp_path: Path) -> None:
    room = EndUsers(tmp_path / "key", any_database)
    await room.open()
    for team, store in (("search", True), ("shop", False), ("search", True)):
        entry = asking(team, store=store)
        room.note({"user": "ada\0\ud800"}, entry)
        assert entry.end_user.startswith("eu_")
    nobody = asking("search", store=True)
    room.note({}, nobody)
    assert nobody.end_user == ""
    await room.aclose()
    assert await asyncio.to_thread(kept, any_database) == {(entry.end_user, "search"): "ada?"}


async def test_ten_thousand_at_once(database: Database, tmp_path: Path) -> None:
    room = EndUsers(tmp_path / "key", database)
    await room.open()
    for number in range(10_000):
        room.note({"user": f"user {number}"}, asking("search", store=True))
    await room.aclose()
    assert len(set((await asyncio.to_thread(kept, database)).values())) == 10_000


async def test_who_is_forgotten_stays_so_and_the_chain_holds(any_database: Database, tmp_path: Path) -> None:
    room, directory = EndUsers(tmp_path / "key", any_database), tmp_path / "journal"
    await room.open()
    entry = asking("search", store=True)
    room.note({"user": "ada"}, entry)
    await room.aclose()
    await asyncio.to_thread(write, directory, any_database, [row("req_1", end_user=entry.end_user), row("req_2")])

    def erase() -> tuple[str, int, int]:
        with any_database.begin() as connection:
            pseudonym, erased = forget(connection, "ada", Pseudonyms(secret(tmp_path / "key")), 1.0)
            return pseudonym, erased, rows_of(connection, pseudonym)

    assert await asyncio.to_thread(erase) == (entry.end_user, 1, 1)
    assert await asyncio.to_thread(erase) == (entry.end_user, 0, 1)
    again = EndUsers(tmp_path / "key", any_database)
    await again.open()
    again.note({"user": "ada"}, asking("search", store=True))
    await again.aclose()
    assert await asyncio.to_thread(kept, any_database) == {(entry.end_user, "search"): None}

    def check() -> object:
        with snapshot(any_database) as connection:
            return verify(connection, anchor.read(anchor.beside(directory))).findings

    assert await asyncio.to_thread(check) == ()
