"""What one team's policy file can do to a running gateway: nothing but keep its own team's last good policy."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]  # processes start, on a machine that is busy

CONFIG = """\
backends: []
local_model: {enabled: false}
admin_api: true
"""
SEEN_S = 40
"""A generous bound for what takes a second on an idle machine."""
MOST_GROWTH_KIB = 50 * 1024
BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGES = "".join(f"m{n}: &m{n}\n  <<: [{', '.join([f'*m{n - 1}'] * 9)}]\n" for n in range(1, 12))


def written(content: str | bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(content.encode() if isinstance(content, str) else content)


def linked(target: str) -> Callable[[Path], object]:
    return lambda file: file.symlink_to(target)


ATTACKS: dict[str, Callable[[Path], object]] = {
    "a NUL byte": written("team: mean\0\n"),
    "an escaped NUL": written('team: mean\nbudget: {limit_usd: 1, name: "a\\0b"}\n'),
    "half of a surrogate pair": written('team: mean\nmodels: {fast: "\\uD800"}\n'),
    "an integer of 5000 digits": written(f"team: mean\nlimits: {{concurrent: {'9' * 5000}}}\n"),
    "a hexadecimal integer of 20000 digits": written(f"team: mean\nlimits: {{concurrent: 0x{'f' * 20000}}}\n"),
    "an integer beyond 64 bits": written(f"team: mean\nlimits: {{concurrent: {10**30}}}\n"),
    "a day that is none": written("team: 2026-99-99\n"),
    "a date that is none": written("team: !!timestamp mean\n"),
    "a list as a key": written("team: mean\n? [a, b]\n: 1\n"),
    "text that is not UTF-8": written(b"team: \xff\xfe\n"),
    "ten megabytes": written("team: mean\nmodels: {" + "a: b, " * 1_700_000 + "}\n"),
    "many small values": written("team: mean\nx: [" + "a," * 120_000 + "]\n"),
    "many unknown keys": written("team: mean\n" + "".join(f"k{n}: 1\n" for n in range(9_000))),
    "aliases that multiply": written(f"team: mean\na0: &a0 [x, x]\n{BOMB}"),
    "merges that multiply": written(f"team: mean\nm0: &m0 {{x: y}}\n{MERGES}"),
    "an alias in its own anchor": written("team: mean\nx: &x [*x]\n"),
    "deep nesting": written("team: mean\nx: " + "[" * 50_000 + "]" * 50_000),
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to a device without an end": linked("/dev/zero"),
    "a link to a terminal": linked("/dev/tty"),
    "a link out of the folder": linked("/etc/hostname"),
    "a link to nothing": linked("nowhere"),
    "a link to itself": linked("mean.yaml"),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("policies") / "home"
    with GatewayProcess(home, CONFIG, {"mean": "", "kind": "cache: {ttl: 1s}\n"}) as process:
        yield process


def fetched(gateway: GatewayProcess, path: str, key: str = "") -> bytes:
    request = Request(gateway.base + path, headers={"authorization": f"Bearer {key}"} if key else {})
    with urlopen(request, timeout=30) as reply:
        found: bytes = reply.read()
        return found


def health(gateway: GatewayProcess) -> str:
    found: str = orjson.loads(fetched(gateway, "/health"))["parts"]["policies"]
    return found


def replace(file: Path, attack: Callable[[Path], object]) -> None:
    """In one step, as whoever deploys a file does it."""
    if file.is_dir():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)
    attack(file)


def ttl(gateway: GatewayProcess, team: str, key: str) -> float | None:
    """In force now; None while a new worker has not read the keys."""
    try:
        policies = orjson.loads(fetched(gateway, "/admin/policies", key))
    except HTTPError as error:
        with error:
            if error.code != 503:
                raise
        return None
    found: float = policies["teams"][team]["policy"]["cache"]["ttl"]
    return found


def peak_kib(gateway: GatewayProcess) -> int:
    """Of all its processes together."""
    assert gateway.process is not None
    peaks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getpgid(int(entry.name)) == gateway.process.pid:
                    status = (entry / "status").read_text()
                    peaks += int(status.partition("VmHWM:")[2].split()[0])
            except (OSError, IndexError):
                continue
    return peaks


async def awaited(gateway: GatewayProcess, true: Callable[[], object]) -> None:
    await until(lambda: asyncio.to_thread(true), SEEN_S)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_file_that_cannot_be_a_policy_is_named_and_no_other_teams_edit_waits_for_it(
    gateway: GatewayProcess, attack: str
) -> None:
    admin = await gateway.key("kind", "--scope", "admin")
    file, seconds = gateway.folder / "mean.yaml", 10 + list(ATTACKS).index(attack)
    before, said = await asyncio.to_thread(peak_kib, gateway), len(gateway.log)
    await asyncio.to_thread(replace, file, ATTACKS[attack])
    try:
        await awaited(gateway, lambda: "stale" in health(gateway))
        assert str(file) in gateway.log[said:]
        assert len(gateway.log) - said < 20_000
        assert b"thriftgate_policies_stale 1" in await asyncio.to_thread(fetched, gateway, "/metrics", admin)
        gateway.write_policy("kind", f"cache: {{ttl: {seconds}s}}\n")
        await awaited(gateway, lambda: ttl(gateway, "kind", admin) == seconds)
        assert await asyncio.to_thread(peak_kib, gateway) - before < MOST_GROWTH_KIB
    finally:
        await asyncio.to_thread(replace, file, written(f"team: mean\ncache: {{ttl: {seconds}s}}\n"))
    await awaited(gateway, lambda: health(gateway) == "ok" and ttl(gateway, "mean", admin) == seconds)


async def test_a_file_cannot_take_the_place_of_another_teams_policy(gateway: GatewayProcess) -> None:
    admin = await gateway.key("kind", "--scope", "admin")
    gateway.write_policy("kind", "cache: {ttl: 5s}\n")
    await awaited(gateway, lambda: ttl(gateway, "kind", admin) == 5)
    (gateway.folder / "a.yaml").write_text("team: kind\ncache: {ttl: 9s}\n")
    try:
        await awaited(gateway, lambda: "stale" in health(gateway))
        gateway.write_policy("kind", "cache: {ttl: 6s}\n")
        await awaited(gateway, lambda: ttl(gateway, "kind", admin) == 6)
    finally:
        (gateway.folder / "a.yaml").unlink()
    await awaited(gateway, lambda: health(gateway) == "ok")


async def test_a_file_that_is_never_left_alone_keeps_no_other_teams_edit_waiting(gateway: GatewayProcess) -> None:
    admin = await gateway.key("kind", "--scope", "admin")

    async def restless() -> None:
        for number in range(10**6):
            (gateway.folder / "mean.yaml").write_text(f"team: mean\n#{number}\n")
            await asyncio.sleep(0.01)

    writing = asyncio.create_task(restless())
    try:
        gateway.write_policy("kind", "cache: {ttl: 7s}\n")
        await awaited(gateway, lambda: ttl(gateway, "kind", admin) == 7)
    finally:
        writing.cancel()


async def test_sigterm_is_obeyed_while_a_policy_is_a_fifo(tmp_path: Path) -> None:
    with await asyncio.to_thread(GatewayProcess, tmp_path / "home", CONFIG, {"mean": ""}) as process:
        await asyncio.to_thread(replace, process.folder / "mean.yaml", os.mkfifo)
        await until(lambda: "mean.yaml" in process.log)
        assert await asyncio.to_thread(process.stop) == 0


@pytest.mark.parametrize("attack", ["an escaped NUL", "a FIFO", "many unknown keys"])
async def test_a_worker_that_dies_beside_a_wrong_file_comes_back_with_what_was_in_force(
    tmp_path: Path, attack: str
) -> None:
    teams = {"kind": "cache: {ttl: 5s}\n", "mean": "cache: {ttl: 6s}\n"}
    with await asyncio.to_thread(GatewayProcess, tmp_path / "home", CONFIG, teams) as process:
        admin = await process.key("kind", "--scope", "admin")
        process.write_policy("mean", "cache: {ttl: 8s}\n")
        await awaited(process, lambda: ttl(process, "mean", admin) == 8)
        copies = process.home / "data" / "policies-in-force"
        await until(lambda: any("ttl: 8.0" in copy.read_text() for copy in copies.glob("*.yaml")), SEEN_S)
        await asyncio.to_thread(replace, process.folder / "mean.yaml", ATTACKS[attack])
        await awaited(process, lambda: "stale" in health(process))
        (worker,) = process.facts["workers"]
        os.kill(worker, signal.SIGKILL)
        await awaited(process, lambda: process.facts["workers"] not in ([], [worker]))
        await awaited(process, lambda: ttl(process, "mean", admin) == 8 and ttl(process, "kind", admin) == 5)
        assert "stale" in health(process)
        await asyncio.to_thread(replace, process.folder / "mean.yaml", written("team: mean\ncache: {ttl: 9s}\n"))
        await awaited(process, lambda: ttl(process, "mean", admin) == 9 and health(process) == "ok")
