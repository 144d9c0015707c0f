"""Tests that several processes run are reported as if one had run them, and none is lost when a process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from loadtests.processes import REPOSITORY

CONFTEST = """
import os, pathlib, pytest

@pytest.fixture(scope="session", autouse=True)
def whole(tmp_path_factory):
    yield
    (tmp_path_factory.getbasetemp() / "ended").write_text(str(os.getpid()))
"""
FILES = {
    "test_a.py": """
import os, pathlib, pytest, sys

def test_passes(): print("seen here alone")
def test_fails(): print("printed"); assert 1 == 2
def test_ends_its_process(): os._exit(7)
def test_follows(): pass
@pytest.mark.flaky(reruns=1)
def test_passes_the_second_time(request): assert request.node.execution_count == 2
""",
    "test_b.py": """
import warnings, pytest

@pytest.fixture(scope="module")
def broken():
    yield
    raise ValueError("at the end of the module")

def test_warns(): warnings.warn("told by the first process")
@pytest.mark.flaky(reruns=1)
def test_fails_twice(): assert 0
def test_with_a_broken_end(broken): pass
""",
    "test_c.py": "def test_one(): pass\n",
}


def run(folder: Path, *words: str) -> tuple[int, str, dict[str, list[str]]]:
    """The exit status, the output, and for each test what became of it."""
    report = folder / "report.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir", str(folder), "-c", str(folder / "pytest.ini"), str(folder),
         "-p", "no:xdist", "-p", "no:schemathesis", "-p", "tests.support.workers", "-n", "2",
         "--basetemp", str(folder / "temporary"), f"--junitxml={report}", "-raR", *words],
        capture_output=True, text=True, cwd=REPOSITORY, timeout=60, check=False,
    )  # fmt: skip
    became = {
        str(case.get("name")): [child.tag for child in case if child.tag in ("failure", "error")]
        for case in ElementTree.parse(report).iter("testcase")
    }
    return done.returncode, done.stdout + done.stderr, became


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_test_is_reported_once_though_a_process_ends_in_one(folder: Path) -> None:
    code, output, became = run(folder)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert became == {
        "test_passes": [],
        "test_fails": ["failure"],
        "test_ends_its_process": ["failure"],
        "test_follows": [],
        "test_passes_the_second_time": [],
        "test_warns": [],
        "test_fails_twice": ["failure"],
        "test_with_a_broken_end": ["error"],
        "test_one": [],
    }
    assert "the process that ran it ended with status 7" in output
    assert "printed" in output
    assert "seen here alone" not in output
    assert "UserWarning: told by the first process" in output
    assert "3 failed, 6 passed, 1 warning, 1 error, 2 rerun" in output
    ended = [file.read_text() for file in (folder / "temporary").rglob("ended")]
    assert len(set(ended)) == len(ended) in (1, 2), "of up to three processes one had no end"


def test_all_processes_together_repeat_no_more_tests_than_are_allowed(folder: Path) -> None:
    for name in FILES:
        text = "@pytest.mark.flaky(reruns=2)\ndef test_one(): assert 0\n"
        (folder / name).write_text(f"import pytest\n{text}{text.replace('one', 'other')}")
    _, output, _ = run(folder, "--max-suite-reruns=3")
    assert "6 failed, 3 rerun" in output


def test_after_the_first_failure_no_other_file_is_begun(folder: Path) -> None:
    (folder / "test_b.py").write_text("import time\ndef test_slow(): time.sleep(1)\n")
    (folder / "test_a.py").write_text("def test_fails(): assert 0\ndef test_other(): pass\n")
    code, output, became = run(folder, "-x")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert became.pop("test_fails") == ["failure"]
    assert set(became) <= {"test_slow"}
    assert "stopping after 1 failures" in output


def test_a_fixture_of_the_session_that_fails_at_its_end_fails_the_run(folder: Path) -> None:
    (folder / "conftest.py").write_text(CONFTEST.replace("yield", "yield\n    raise OSError('too late')"))
    for name in ("test_a.py", "test_b.py"):
        (folder / name).unlink()
    code, output, became = run(folder)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert became == {"test_one": []}
    assert "OSError: too late" in output
