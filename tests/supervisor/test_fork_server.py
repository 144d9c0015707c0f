"""Real workers that are forked: whose children they are, and what happens without the fork server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gateway.ledger.store.writer import NICE
from gateway.supervisor.fork_server import ForkServer
from tests.supervisor.conftest import Gateway, gone, until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # whole process trees


def status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{name}:"))


def ignores(pid: int, number: int) -> bool:
    return bool(int(status(pid, "SigIgn"), 16) >> (number - 1) & 1)


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
    file.write_text("backends: [{name: toy, kind: simulated, model: toy}]\nlocal_model: {enabled: false}\n")
    gateway.start(config=file, real=1, workers=2).ready()
    until(lambda: len(gateway.facts()["workers"]) == 2)
    return gateway


def test_forked_workers_are_the_supervisors_own_and_hold_nothing_of_its_files(real: Gateway) -> None:
    facts = real.facts()
    family = children(facts["pid"])
    assert [family["tg-worker-0"], family["tg-worker-1"]] == facts["workers"]
    for pid in facts["workers"]:
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == os.getsid(facts["pid"])
        assert ignores(pid, signal.SIGTTOU)  # it may log to a terminal with `stty tostop`
        opened = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()]
        assert str(real.data / "lock") not in opened
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    until(lambda: real.get("/health/ready"))
    assert real.end()[0] == 0
    assert gone(*family.values())


def niceness(pid: int) -> set[int]:
    """The nice values of the threads of a process."""
    found = [(entry / "stat").read_text().rpartition(") ")[2].split() for entry in Path(f"/proc/{pid}/task").iterdir()]
    return {int(fields[16]) for fields in found}


def test_only_the_thread_that_drains_the_journals_gives_way_to_the_workers(real: Gateway) -> None:
    facts, own = real.facts(), os.getpriority(os.PRIO_PROCESS, 0)
    until(lambda: niceness(facts["pid"]) == {own, own + NICE})
    for pid in children(facts["pid"]).values():
        assert niceness(pid) == {own}


def fork_server(supervisor: int) -> int | None:
    """Its pid, while there is one."""
    for pid in children(supervisor).values():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "gateway.supervisor.fork_server" in words and not status(pid, "Name").startswith("tg-worker"):
                return pid
        except FileNotFoundError:
            pass
    return None


def test_the_fork_server_ends_when_all_are_ready_and_begins_anew_when_one_has_died(real: Gateway) -> None:
    facts = real.facts()
    until(lambda: "tg-fork-server" not in children(facts["pid"]))
    os.kill(facts["workers"][0], signal.SIGKILL)
    until(lambda: fork_server(facts["pid"]) is not None)
    until(lambda: facts["workers"][0] not in real.facts()["workers"] and len(real.facts()["workers"]) == 2)
    fresh = real.facts()["workers"][0]
    assert children(facts["pid"])["tg-worker-0"] == fresh
    assert "gateway.supervisor.fork_server" in Path(f"/proc/{fresh}/cmdline").read_text()
    assert os.getpgid(fresh) == fresh
    assert os.readlink(f"/proc/{fresh}/fd/0") == "/dev/null"
    until(lambda: fork_server(facts["pid"]) is None)
    os.kill(facts["workers"][1], signal.SIGKILL)  # so that the new one is who answers
    until(lambda: real.get("/health/ready"))
    code, said = real.end()
    assert code == 0
    assert "started by itself" not in said


def test_a_roll_forks_all_of_them_from_one_fork_server(real: Gateway) -> None:
    facts = real.facts()
    until(lambda: "tg-fork-server" not in children(facts["pid"]))
    real.send(signal.SIGUSR2)
    until(lambda: not set(real.facts()["workers"]) & set(facts["workers"]) and fork_server(facts["pid"]) is None)
    workers = real.facts()["workers"]
    assert len(workers) == 2
    for pid in workers:
        rolled = Path(f"/proc/{pid}/smaps_rollup").read_text()
        (shared_kb,) = [int(line.split()[1]) for line in rolled.splitlines() if line.startswith("Shared_Dirty:")]
        assert shared_kb > 8000  # what one has of its own, nobody else maps
    assert real.end()[0] == 0


def test_without_a_fork_server_one_is_spawned(real: Gateway) -> None:
    facts = real.facts()
    until(lambda: "tg-fork-server" not in children(facts["pid"]))
    os.kill(facts["workers"][1], signal.SIGKILL)
    until(lambda: fork_server(facts["pid"]) is not None)
    os.kill(fork_server(facts["pid"]) or 0, signal.SIGKILL)
    until(lambda: facts["workers"][1] not in real.facts()["workers"] and len(real.facts()["workers"]) == 2)
    spawned = real.facts()["workers"][1]
    until(lambda: "gateway.supervisor.worker" in Path(f"/proc/{spawned}/cmdline").read_text())  # empty until it execs
    until(lambda: ignores(spawned, signal.SIGTTOU))
    os.kill(real.facts()["workers"][0], signal.SIGKILL)  # so that the spawned one is who answers
    until(lambda: real.get("/health/ready"))
    code, said = real.end()
    assert code == 0
    assert "worker 1 is started as a program" in said


def test_who_is_told_to_leave_while_the_fork_server_begins_leaves_nothing_behind(real: Gateway) -> None:
    facts = real.facts()
    until(lambda: "tg-fork-server" not in children(facts["pid"]))
    os.kill(facts["workers"][0], signal.SIGKILL)
    until(lambda: fork_server(facts["pid"]) is not None)
    family = children(facts["pid"])
    assert real.end()[0] == 0
    assert gone(*family.values())


def test_when_the_supervisor_is_killed_everybody_goes(real: Gateway) -> None:
    family = children(real.facts()["pid"])
    real.send(signal.SIGKILL)
    until(lambda: gone(*family.values()))
    assert real.process
    real.ended()


def test_beside_other_threads_nothing_is_forked() -> None:
    """The test's own process has them: the state server's, for one."""
    import threading

    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        assert ForkServer.open() is None
    finally:
        release.set()
        thread.join()
