from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cache.coalescing.host_locks import HostLocks

ONE, TWO = b"one.............", b"two............."
OTHER = """
import sys
from pathlib import Path
from gateway.cache.coalescing.host_locks import HostLocks
claims = HostLocks(Path(sys.argv[1]))
claims.open()
for line in sys.stdin:
    what, digest = line.split()
    print(getattr(claims, what)(digest.encode()), flush=True)
"""


class Other:
    """Another worker."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, what: str, digest: bytes) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{what} {digest.decode()}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def claims(tmp_path: Path) -> Iterator[HostLocks]:
    mine = HostLocks(tmp_path / "joins")
    mine.open()
    yield mine
    mine.close()


@pytest.fixture
def other(tmp_path: Path, claims: HostLocks) -> Iterator[Other]:
    worker = Other(tmp_path / "joins")
    yield worker
    worker.end()


def test_what_one_worker_asks_for_the_others_find_with_it(claims: HostLocks, other: Other) -> None:
    assert other.tell("take", ONE) == "None"
    assert claims.take(ONE) == other.process.pid
    assert claims.take(TWO) is None
    assert other.tell("take", TWO) == str(os.getpid())
    claims.release(TWO)
    assert other.tell("take", TWO) == "None"


def test_a_worker_that_dies_holds_nothing(claims: HostLocks, other: Other) -> None:
    assert other.tell("take", ONE) == "None"
    other.end()
    assert claims.take(ONE) is None


def test_a_file_that_is_closed_claims_nothing_and_is_in_nobodys_way(claims: HostLocks) -> None:
    claims.close()
    assert claims.take(ONE) is None
    claims.release(ONE)
