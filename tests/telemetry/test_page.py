"""A page is whole whoever dies while it is written, and tells whether its process lives."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.telemetry import page
from gateway.telemetry.page import MetricsFile


def test_the_newest_edition_is_read(tmp_path: Path) -> None:
    written = MetricsFile(tmp_path, "one")
    assert page.read(tmp_path, "one") is None
    for data in (b"first", b"second, longer", b"3", b"x" * 100_000, b""):
        written.write(data)
        assert page.read(tmp_path, "one") == data
    written.close()
    assert page.read(tmp_path, "one") == b""
    assert page.read(tmp_path, "two") is None


def test_an_edition_that_was_torn_is_passed_over_for_the_last_whole_one(tmp_path: Path) -> None:
    written = MetricsFile(tmp_path, "one")
    written.write(b"first")
    written.write(b"second")
    (side,) = [side for side in page.SIDES if b"second" in (tmp_path / f"one{side}").read_bytes()]
    place = tmp_path / f"one{side}"
    place.write_bytes(place.read_bytes().replace(b"second", b"sec\0\0\0"))
    assert page.read(tmp_path, "one") == b"first"
    place.write_bytes(b"")
    assert page.read(tmp_path, "one") == b"first"
    written.close()


def test_its_process_is_alive_until_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from gateway.telemetry.page import MetricsFile; "
        "page = MetricsFile(Path(sys.argv[1]), 'other'); page.write(b'hello'); print('on', flush=True); time.sleep(15)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"on\n"
        other.send_signal(signal.SIGSTOP)
        assert page.alive(tmp_path, "other")
        other.kill()
    assert not page.alive(tmp_path, "other")
    assert page.read(tmp_path, "other") == b"hello"
    assert page.names(tmp_path) == ["other"]
    page.remove(tmp_path, "other")
    assert page.names(tmp_path) == []
    assert not page.alive(tmp_path, "other")


def test_a_disk_that_is_full_does_not_stop_what_has_its_place(tmp_path: Path) -> None:
    written = MetricsFile(tmp_path, "one")
    written.write(b"before")
    full = sum((tmp_path / f"one{side}").stat().st_size for side in page.SIDES) // 2
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, hard))  # no file can become larger than they are now
    try:
        written.write(b"after")
        with pytest.raises(OSError, match="File too large"):
            written.write(b"x" * full)
        assert page.read(tmp_path, "one") == b"after"
        written.write(b"later")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert page.read(tmp_path, "one") == b"later"
    written.write(b"x" * full)
    written.close()


def test_a_page_that_cannot_be_made_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        MetricsFile(tmp_path / "missing", "one")
    assert len(os.listdir("/proc/self/fd")) == before
