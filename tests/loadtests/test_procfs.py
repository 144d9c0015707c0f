"""CPU and memory as /proc tells them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests import procfs
from loadtests.procfs import Stat, parse_pss, parse_stat, stats, tree

LINE = "4711 (a (b) c) S 12 4711 4711 0 -1 4194560 100 0 0 0 31 9 5 2 20 0 1 0 1 1 1\n"


def test_a_name_may_hold_spaces_and_brackets() -> None:
    assert parse_stat(LINE) == Stat(4711, "a (b) c", 12, own=40, waited_for=7)


def test_memory_is_the_proportional_one_in_bytes() -> None:
    assert parse_pss("00 [rollup]\nRss: 900 kB\nPss:  300 kB\nPss_Anon: 1 kB\n") == 300 * 1024


def test_a_tree_is_all_below_its_root_and_nothing_else() -> None:
    seen = {pid: Stat(pid, "p", parent, 1, 0) for pid, parent in ((1, 0), (2, 1), (3, 2), (4, 2), (5, 1))}
    assert {each.pid for each in tree(2, seen)} == {2, 3, 4}
    assert {each.pid for each in tree(1, seen, without=[2])} == {1, 5}


def test_processes_that_end_while_they_are_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "stat").write_text(LINE.replace("4711", "8"))
    (tmp_path / "meminfo").write_text("")
    assert set(stats(tmp_path)) == {8}


def test_the_cpu_of_a_child_counts_also_when_it_has_ended() -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    before = procfs.cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert procfs.cpu_s(os.getpid()) - before >= 0.15


def test_a_living_tree_has_memory_and_threads() -> None:
    found = procfs.pss(os.getpid())
    assert sum(found.values()) > 2**20
    assert os.getpid() in procfs.threads_s(os.getpid())


def test_a_quiet_process_settles_and_a_busy_one_does_not() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    quiet = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        assert not procfs.settled(busy.pid, 2.0)
        assert procfs.settled(quiet.pid, 15.0)
    finally:
        for process in (busy, quiet):
            process.kill()
            process.wait()


@pytest.mark.parametrize("text", ["", "1 (x"])
def test_what_is_no_stat_is_refused(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_stat(text)
