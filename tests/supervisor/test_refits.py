"""The weekly refit: due a week after the last one, in a process of its own, whatever restarts in between."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from gateway.policy.keys import create
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from gateway.supervisor.refits import AGAIN_S, WEEK_S, Refits
from tests.cli.test_compare import serving
from tests.cli.test_refit import CONFIG, POLICY, keep
from tests.fakes.provider import Provider, Reply
from tests.supervisor.conftest import Gateway, gone, until
from tests.supervisor.test_fork_server import children
from tests.support.waiting import wait_until


class Clock:
    now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def touches(path: Path, status: int = 0) -> list[str]:
    return [sys.executable, "-c", f"open({str(path)!r}, 'a').write('x'); raise SystemExit({status})"]


async def run(refits: Refits, until: float, stamp: Path) -> None:
    """Run until the stamp names the time `until`."""
    task = asyncio.ensure_future(refits.run())
    async with asyncio.timeout(30):
        while not (stamp.exists() and float(stamp.read_text() or 0) == until):
            await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await refits.aclose()


async def test_it_runs_a_week_after_it_was_switched_on_and_again_a_week_later(tmp_path: Path) -> None:
    clock, stamp, done = Clock(), tmp_path / "refit" / "due", tmp_path / "done"
    refits = Refits(stamp, lambda: touches(done), check_s=0.01, clock=clock)
    await run(refits, 1000 + WEEK_S, stamp)
    assert not done.exists()
    clock.now += WEEK_S
    await run(Refits(stamp, lambda: touches(done), check_s=0.01, clock=clock), clock.now + WEEK_S, stamp)
    assert done.read_text() == "x"


async def test_after_a_failure_it_runs_again_in_a_day(tmp_path: Path) -> None:
    clock, stamp, done = Clock(), tmp_path / "due", tmp_path / "done"
    stamp.write_text("5.0")
    await run(Refits(stamp, lambda: touches(done, 1), check_s=0.01, clock=clock), 1000 + AGAIN_S, stamp)
    assert done.read_text() == "x"


async def test_it_does_nothing_while_it_is_switched_off(tmp_path: Path) -> None:
    refits = Refits(tmp_path / "due", lambda: None, check_s=0.001, clock=Clock())
    task = asyncio.ensure_future(refits.run())
    await asyncio.sleep(0.05)
    task.cancel()
    assert not (tmp_path / "due").exists()


SAMPLES = 200


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider(default=Reply(text="The answer is 3.", delay_s=0.02))
    with serving(provider):
        yield provider


def outcomes(gateway: Gateway) -> list[Path]:
    return list((gateway.data / "refit").glob("search-*.jsonl"))


def measured(gateway: Gateway) -> int:
    return sum(path.read_bytes().count(b"\n") for path in outcomes(gateway))


def plans_on_trial(gateway: Gateway, key: str) -> float:
    asked = Request(gateway.facts()["url"] + "/metrics", headers={"authorization": f"Bearer {key}"})
    with urlopen(asked, timeout=10) as reply:
        found = [line for line in reply.read().splitlines() if b"plans_on_trial" in line]
    return float(found[0].split()[-1]) if found else 0.0


@pytest.mark.heavy
@pytest.mark.timeout(180)
def test_a_due_refit_puts_a_plan_on_trial_though_the_gateway_was_killed_meanwhile(
    gateway: Gateway, provider: Provider
) -> None:
    home, gateway.data = gateway.data, gateway.data / "data"
    keep(home, SAMPLES)
    database = Database(f"sqlite:///{Paths(gateway.data).sqlite}")
    key, _ = create(database, "search", scopes=("admin",))
    database.close()
    config, policies, due = home / "gateway.yaml", home / "policies", gateway.data / "refit" / "due"
    config.write_text(CONFIG.format(a=provider.url, b=provider.url) + "routing: {refit: weekly}\n")
    for folder in (policies, due.parent):
        folder.mkdir()
    (policies / "search.yaml").write_text(POLICY)
    due.write_text("1.0")
    options = {"config": config, "policies": policies, "real": 1}

    gateway.start(**options).ready()
    until(lambda: measured(gateway) >= 20)
    assert gateway.process
    family = children(gateway.process.pid).values()
    gateway.process.kill()
    gateway.ended()
    until(lambda: gone(*family))
    (file,) = outcomes(gateway)
    file.write_bytes(file.read_bytes()[:-10])  # a kill may leave the last line in part
    assert (due.read_text(), measured(gateway) < SAMPLES) == ("1.0", True)
    before, known = len(provider.exchanges), measured(gateway)

    gateway.start(**options).ready()
    wait_until(lambda: plans_on_trial(gateway, key) == 1.0, 120, not_yet=(OSError,))
    assert measured(gateway) == SAMPLES
    in_flight = 2 * 4  # calls that the kill interrupted, and that the provider may have counted later
    assert len(provider.exchanges) - before <= 2 * (SAMPLES - known) + in_flight
    until(lambda: float(due.read_text()) > time.time() + WEEK_S / 2)
    assert gateway.end()[0] == 0
