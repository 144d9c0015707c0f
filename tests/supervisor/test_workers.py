"""Workers that freeze, never start or keep ending; and all of them replaced one after another."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.supervisor.conftest import Gateway, gone, until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # whole process trees


@pytest.fixture
def file(gateway: Gateway) -> Path:
    """The operator's file."""
    file = gateway.data / "gateway.yaml"
    file.write_text("admin_api: false\n")
    return file


def test_a_worker_that_freezes_is_replaced(gateway: Gateway) -> None:
    gateway.start(patience_s=1).ready()
    (first,) = gateway.facts()["workers"]
    os.kill(first, signal.SIGSTOP)
    until(lambda: gateway.facts()["workers"] not in ([first], []))
    assert gone(first)
    _, said = gateway.end()
    assert f"worker 0 (pid {first}) is frozen" in said


def test_a_worker_that_never_starts_is_replaced(gateway: Gateway, file: Path) -> None:
    file.write_text("# mute\n{}\n")
    gateway.start(config=file, patience_s=1)
    until(lambda: gateway.facts()["workers"])
    (first,) = gateway.facts()["workers"]
    until(lambda: gateway.facts()["workers"] not in ([first], []))
    _, said = gateway.end()
    assert f"worker 0 (pid {first}) did not start" in said


def test_a_crash_loop_is_told_once_with_the_last_error(gateway: Gateway, file: Path) -> None:
    file.write_text("# crash\n{}\n")
    gateway.start(config=file)
    until(lambda: gateway.facts()["troubles"])
    assert gateway.facts()["troubles"] == ["worker 0 keeps ending with status 3"]
    _, said = gateway.end()
    assert said.count("again in") == 4
    assert said.count("worker 0 keeps ending, the last time it (pid ") == 1
    assert "ended with status 3: Sorry: it cannot" in said


def test_a_roll_replaces_all_workers_and_takes_the_file_up(gateway: Gateway, file: Path) -> None:
    gateway.start(config=file, workers=2)
    before = gateway.all_ready(2)
    file.write_text("admin_api: true\n")
    os.kill(before[0], signal.SIGKILL)  # what replaces one that died still knows the old file
    until(lambda: len(set(gateway.facts()["workers"]) - {before[0]}) == 2)
    assert (gateway.data / "accepted.yaml").read_text() == "admin_api: false\n"
    before = gateway.facts()["workers"]
    gateway.send(signal.SIGUSR2)
    until(lambda: gone(*before) and len(gateway.facts()["workers"]) == 2)
    assert not set(gateway.facts()["workers"]) & set(before)
    assert (gateway.data / "accepted.yaml").read_text() == "admin_api: true\n"
    assert gateway.facts()["troubles"] == []
    assert gateway.end()[0] == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense: 1\n", "gateway.yaml:1: nonsense"),
        ("state: {redis_url: 'redis://127.0.0.1:1'}\n", "gateway.yaml: state: a change there needs a restart"),
    ],
)
def test_a_roll_onto_a_file_that_cannot_be_taken_up_is_refused(
    gateway: Gateway, file: Path, text: str, complaint: str
) -> None:
    gateway.start(config=file).ready()
    before = gateway.facts()["workers"]
    file.write_text(text)
    gateway.send(signal.SIGUSR2)
    until(lambda: gateway.facts()["troubles"] == ["gateway.yaml was refused, see the log"])
    assert gateway.facts()["workers"] == before
    file.write_text("admin_api: true\n")
    gateway.send(signal.SIGUSR2)
    until(lambda: gateway.facts()["troubles"] == [] and gateway.facts()["workers"] != before)
    _, said = gateway.end()
    assert complaint in said


def test_a_roll_whose_replacement_does_not_start_leaves_the_old_workers(gateway: Gateway, file: Path) -> None:
    gateway.start(config=file, workers=2)
    before = gateway.all_ready(2)
    file.write_text("# crash\n{}\n")
    gateway.send(signal.SIGUSR2)
    until(lambda: gateway.facts()["troubles"] == ["the last rolling restart was given up, see the log"])
    assert sorted(gateway.facts()["workers"]) == before
    assert (gateway.data / "accepted.yaml").read_text() == "admin_api: false\n"
    assert gateway.worker()["pid"] in before
    assert "stopped after 0 of 2" in gateway.end()[1]


def test_until_the_delay_is_over_all_is_served_by_workers_that_are_not_ready(gateway: Gateway, file: Path) -> None:
    file.write_text("requests: {drain_delay: 1s}\n")
    facts = gateway.start(config=file).ready().facts()
    began = time.monotonic()
    gateway.send(signal.SIGTERM)
    until(lambda: gateway.worker()["leaving"] == 1)
    assert gateway.end(signal.SIGCONT)[0] == 0
    assert time.monotonic() - began >= 1
    with pytest.raises(ConnectionRefusedError), socket.create_connection((facts["host"], facts["port"])):
        pass


def test_a_second_signal_ends_the_delay(gateway: Gateway, file: Path) -> None:
    file.write_text("requests: {drain_delay: 1h}\n")
    gateway.start(config=file).ready()
    gateway.send(signal.SIGTERM)
    assert b"finishing open streams" in gateway.next_line()
    assert gateway.end()[0] == 0
