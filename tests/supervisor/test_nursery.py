"""Real workers that are forked: whose children they are, and what happens without the nursery."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gateway.supervisor.nursery import Nursery
from tests.supervisor.conftest import Gateway, gone, until

pytestmark = pytest.mark.heavy  # whole process trees


def status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{name}:"))


def children(pid: int) -> dict[str, int]:
    """Name → pid."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = {}
    for each in pids:
        try:
            if int(status(each, "PPid")) == pid:
                found[status(each, "Name")] = each
        except FileNotFoundError:
            pass
    return found


@pytest.fixture
def real(gateway: Gateway) -> Gateway:
    file = gateway.data / "gateway.yaml"
    file.write_text("backends: []\nlocal_model: {enabled: false}\n")
    gateway.start(config=file, real=1, workers=2).ready()
    until(lambda: len(gateway.facts()["workers"]) == 2)
    return gateway


def test_forked_workers_are_the_supervisors_own_and_hold_nothing_of_its_files(real: Gateway) -> None:
    facts = real.facts()
    family = children(facts["pid"])
    assert [family["tg-worker-0"], family["tg-worker-1"]] == facts["workers"]
    for pid in facts["workers"]:
        assert os.getsid(pid) == pid
        opened = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()]
        assert str(real.data / "lock") not in opened
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert real.get("/health/ready")
    assert real.end()[0] == 0
    assert gone(*family.values())


def test_one_that_dies_is_forked_again_and_without_a_nursery_spawned(real: Gateway) -> None:
    facts = real.facts()
    os.kill(facts["workers"][0], signal.SIGKILL)
    until(lambda: children(facts["pid"]).get("tg-worker-0", facts["workers"][0]) != facts["workers"][0])
    os.kill(children(facts["pid"])["tg-nursery"], signal.SIGKILL)
    assert not gone(facts["workers"][1])
    os.kill(facts["workers"][1], signal.SIGKILL)
    until(lambda: len(set(real.facts()["workers"]) - set(facts["workers"])) == 2)
    spawned = real.facts()["workers"][1]
    assert "gateway.supervisor.worker" in Path(f"/proc/{spawned}/cmdline").read_text()
    os.kill(real.facts()["workers"][0], signal.SIGKILL)  # so that the spawned one is who answers
    until(lambda: real.get("/health/ready"))
    code, said = real.end()
    assert code == 0
    assert "from now on workers are started one by one" in said


def test_when_the_supervisor_is_killed_everybody_goes(real: Gateway) -> None:
    family = children(real.facts()["pid"])
    real.send(signal.SIGKILL)
    until(lambda: gone(*family.values()))
    assert real.process
    real.process.communicate()


def test_beside_other_threads_nothing_is_forked() -> None:
    """The test's own process has them: the state server's, for one."""
    import threading

    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        assert Nursery.open() is None
    finally:
        release.set()
        thread.join()
