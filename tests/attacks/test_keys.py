"""A stolen secret against whoever revokes keys, on a gateway of two workers."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.support.naming import unique

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends: [{name: fake, kind: simulated, model: fake, tier: small}]
local_model: {enabled: false}
admin_api: true
"""
DEAD_S = 20
"""In which a revoked key must be dead everywhere: it is after one second, and this machine may be busy."""
IN_A_ROW = 12
"""Looks of new connections, after which every worker has been asked."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("keys") / "home", CONFIG, workers=2) as process:
        yield process


@dataclass(frozen=True)
class Made:
    """What `keys create` and `keys rotate` print."""

    id: str
    key: str


def made(gateway: GatewayProcess, *arguments: str) -> Made:
    printed = gateway.json("keys", *arguments)
    return Made(printed["id"], printed["key"])


async def status(gateway: GatewayProcess, key: Made) -> int:
    async with httpx.AsyncClient(base_url=gateway.base, timeout=30) as http:
        found = await http.get("/v1/models", headers={"authorization": f"Bearer {key.key}"})
    return found.status_code


async def everywhere(gateway: GatewayProcess, key: Made, wanted: int) -> Made:
    """Once so many looks in a row, each on a connection of its own, are answered with `wanted`."""
    in_a_row = 0
    async with asyncio.timeout(DEAD_S if wanted == 401 else 60):
        while in_a_row < IN_A_ROW:
            in_a_row = in_a_row + 1 if await status(gateway, key) == wanted else 0
    return key


async def test_revoking_the_new_key_ends_the_stolen_one_in_its_grace_on_every_worker(gateway: GatewayProcess) -> None:
    stolen = await everywhere(gateway, made(gateway, "create", "--team", "search"), 200)
    fresh = await everywhere(gateway, made(gateway, "rotate", stolen.id, "--grace", "2h"), 200)
    # Another team's grace that ends later must not hide that this one ends early.
    other = made(gateway, "create", "--team", "other")
    gateway.json("keys", "rotate", other.id, "--grace", "9d")
    await everywhere(gateway, stolen, 200)

    assert set(gateway.json("keys", "revoke", fresh.id)["ended"]) == {stolen.id, fresh.id}

    await everywhere(gateway, fresh, 401)
    await everywhere(gateway, stolen, 401)
    assert await status(gateway, other) == 200


async def test_revoking_a_replaced_key_in_its_grace_ends_its_lineage_too(gateway: GatewayProcess) -> None:
    first = made(gateway, "create", "--team", "search")
    second = made(gateway, "rotate", first.id, "--grace", "2h")
    third = await everywhere(gateway, made(gateway, "rotate", second.id, "--grace", "1h"), 200)
    assert set(gateway.json("keys", "revoke", second.id)["ended"]) == {first.id, second.id, third.id}
    for key in (first, second, third):
        await everywhere(gateway, key, 401)


async def test_all_keys_of_a_team_end_by_one_command_that_asks_for_confirmation(gateway: GatewayProcess) -> None:
    team = unique("leaving")
    app = made(gateway, "create", "--team", team)
    graced = made(gateway, "create", "--team", team)
    fresh = await everywhere(gateway, made(gateway, "rotate", graced.id, "--grace", "1d"), 200)
    asked = gateway.run("keys", "revoke", "--team", team, check=False)
    assert asked.returncode != 0
    assert f"3 keys of team {team}" in asked.stderr
    assert "--yes" in asked.stderr
    assert await status(gateway, app) == 200
    assert set(gateway.json("keys", "revoke", "--team", team, "--yes")["ended"]) == {app.id, graced.id, fresh.id}
    for key in (app, graced, fresh):
        await everywhere(gateway, key, 401)


async def test_an_admin_ends_lineages_and_teams_over_http(gateway: GatewayProcess) -> None:
    admin = await everywhere(
        gateway, made(gateway, "create", "--team", "ops", "--scope", "admin", "--scope", "inference"), 200
    )
    team = unique("rogue")
    old = made(gateway, "create", "--team", team)
    new = made(gateway, "rotate", old.id, "--grace", "1d")
    third = made(gateway, "create", "--team", team)
    async with httpx.AsyncClient(timeout=30, base_url=gateway.base, headers={"x-api-key": admin.key}) as http:
        await everywhere(gateway, third, 200)
        ended = await http.delete(f"/admin/keys/{new.id}")
        assert set(ended.json()["ended"]) == {old.id, new.id}
        unconfirmed = await http.delete("/admin/keys", params={"team": team})
        assert (unconfirmed.status_code, "confirm=true" in unconfirmed.text) == (400, True)
        assert await status(gateway, third) == 200
        swept = await http.delete("/admin/keys", params={"team": team, "confirm": "true"})
        assert swept.json() == {"team": team, "ended": [third.id]}
    for key in (old, new, third):
        await everywhere(gateway, key, 401)


async def test_a_key_is_over_within_seconds_of_its_revocation_though_a_writer_holds_the_database(
    gateway: GatewayProcess,
) -> None:
    """Workers only read the keys, and readers of SQLite never wait."""
    key = await everywhere(gateway, made(gateway, "create", "--team", "search"), 200)
    link = sqlite3.connect(gateway.home / "data" / "ledger.sqlite", isolation_level=None, timeout=30)
    try:
        link.execute("BEGIN IMMEDIATE")
        link.execute("UPDATE keys SET revoked_at = ? WHERE id = ?", (time.time(), key.id))
        link.execute("COMMIT")
        link.execute("BEGIN IMMEDIATE")  # held while the workers look
        await everywhere(gateway, key, 401)
    finally:
        link.close()
