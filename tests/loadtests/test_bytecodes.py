"""The count of bytecodes: it counts what runs while it is on, and a plain miss is found to take some."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loadtests.bytecodes import REPOSITORY, Counter


def work(times: int) -> int:
    return sum([number * number for number in range(times)])


def counted(times: int) -> tuple[int, int]:
    with Counter() as counter:
        work(times)
    return counter.bytecodes, counter.frames


def test_more_work_is_more_bytecodes_in_as_many_frames() -> None:
    few, many = counted(10), counted(1000)
    assert many[0] > 50 * few[0]
    assert many[1] == few[1]
    assert counted(10) == few


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_a_checkout_compared_with_itself_is_no_dearer() -> None:
    command = [sys.executable, "-m", "loadtests", "bytecodes", "--requests", "60", "--tolerance", "15"]
    done = subprocess.run(
        [*command, "--against", str(REPOSITORY)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("bytecodes in") == 2
