from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from gateway.state.leases.worker_names import DeadHolders, dead, own_name
from tests.support.waiting import until


def name_of_another(lives: subprocess.Popen[bytes]) -> str:
    machine, _, since, chance = own_name().split("-", 3)
    return "-".join((machine, f"{lives.pid:x}", since, chance))


async def test_who_has_ended_is_dead_whether_or_not_anybody_waited_for_it() -> None:
    process = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = name_of_another(process)
    try:
        assert await asyncio.to_thread(dead, [name, own_name()]) == []
        process.kill()
        await until(lambda: asyncio.to_thread(dead, [name]))
    finally:
        await asyncio.to_thread(process.communicate)
    assert await asyncio.to_thread(dead, [name]) == [name]


async def test_another_process_with_a_dead_one_s_number_is_not_taken_for_it() -> None:
    machine, _, _, chance = own_name().split("-", 3)
    long_ago = "-".join((machine, f"{os.getpid():x}", "0", chance))
    assert await asyncio.to_thread(dead, [long_ago]) == [long_ago]


async def test_of_other_machines_nobody_is_dead() -> None:
    assert await asyncio.to_thread(dead, ["0badcafe-7fffffff-0-aa", "-7fffffff-0-aa"]) == []


async def test_the_dead_are_told_of_for_as_long_as_anybody_may_ask() -> None:
    peers = DeadHolders(remember_s=0.05)
    machine, _, _, chance = own_name().split("-", 3)
    gone = f"{machine}-7ffffff0-0-{chance}"
    peers.add((gone, own_name()))
    await peers.check()
    assert peers.dead == gone

    async def forgotten() -> bool:
        await peers.check()
        return not peers.dead

    await until(forgotten)
