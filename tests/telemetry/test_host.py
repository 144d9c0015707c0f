"""Figures of many processes put together: nothing counted twice, nothing that was counted taken back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.telemetry import host, page
from gateway.telemetry.exposition import text
from gateway.telemetry.host import REMEMBERED, Archive, Host, Publisher, report
from gateway.telemetry.metrics import Totals
from tests.telemetry.conftest import served
from tests.telemetry.test_metrics import labelled, read

OK = ("search", "small", "miss", "200")


def figures(requests: int, worker: int = 0, in_flight: int = 0, **parts: dict[str, float]) -> dict[str, Any]:
    total = Totals()
    for _ in range(requests):
        total.add(served())
    total.in_flight = in_flight
    return report(worker, total, [(part, name, value) for part, all_ in parts.items() for name, value in all_.items()])


@contextmanager
def publishers(folder: Path, *heard: dict[str, Any]) -> Iterator[list[Publisher]]:
    """Living workers that have said so."""
    opened = [Publisher(folder, number) for number, _ in enumerate(heard)]
    for publisher, what in zip(opened, heard, strict=True):
        publisher.publish(what)
    yield opened
    for publisher in opened:
        publisher.close()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    opened = Archive(tmp_path)
    yield opened
    opened.close()


def requests(folder: Path) -> int:
    return host.collect(folder).totals.requests[OK]


def test_workers_are_added_up(tmp_path: Path) -> None:
    with publishers(tmp_path, figures(3, 0, in_flight=2), figures(4, 1, in_flight=5)):
        found = read(text(host.collect(tmp_path)).decode())
    assert found["thriftgate_requests_total"] == {
        labelled(team="search", backend="small", cache="miss", status="200"): 7
    }
    assert found["thriftgate_in_flight"] == {(): 7}
    assert found["thriftgate_worker_in_flight"] == {labelled(worker="0"): 2, labelled(worker="1"): 5}
    assert found["thriftgate_request_duration_seconds_count"] == {labelled(cache="miss"): 7}


def test_figures_of_now_are_put_together_as_they_make_sense_and_counts_added_up(tmp_path: Path) -> None:
    one = {"state": {"healthy": 1}, "journal": {"open": 2, "closed": 7}, "keys": {"age_s": 0.1}}
    two = {"state": {"healthy": 0}, "journal": {"open": 3, "closed": 5}, "keys": {"age_s": 2.5}}
    fleet = {"a.b.available": 1.0, "a.b.in_flight": 2.0, "a.b.refused": 1, "a.b.timed_out": 2}
    with publishers(
        tmp_path, figures(0, **one, fleet=fleet), figures(0, 1, **two, fleet={**fleet, "a.b.available": 0.0})
    ):
        found = read(text(host.collect(tmp_path)).decode())
    assert found["thriftgate_state_up"] == {(): 0}
    assert found["thriftgate_open_attempts"] == {(): 5}
    assert found["thriftgate_keys_age_seconds"] == {(): 2.5}
    assert found["thriftgate_room"][labelled(room="journal", figure="closed")] == 12
    assert found["thriftgate_backend_available"] == {labelled(backend="a.b"): 0.5}
    assert found["thriftgate_backend_in_flight"] == {labelled(backend="a.b"): 4}
    assert found["thriftgate_backend_refusals_total"] == {labelled(backend="a.b"): 6}


def test_what_all_workers_see_alike_is_not_added_up(tmp_path: Path) -> None:
    seen = {"fleet": {"gpu.server_waiting": 5.0, "gpu.server_kv_used": 0.97, "gpu.queued": 3}}
    with publishers(
        tmp_path, figures(0, **seen, learning={"below_target": 1}), figures(0, 1, **seen, learning={"below_target": 1})
    ):
        found = read(text(host.collect(tmp_path)).decode())["thriftgate_room"]
    assert found[labelled(room="fleet", figure="gpu.server_waiting")] == 5
    assert found[labelled(room="fleet", figure="gpu.server_kv_used")] == 0.97
    assert found[labelled(room="fleet", figure="gpu.queued")] == 6
    assert found[labelled(room="learning", figure="below_target")] == 1


def test_what_an_ended_worker_counted_stays_and_what_it_was_doing_goes(tmp_path: Path, archive: Archive) -> None:
    rooms = {"journal": {"open": 2, "closed": 7}}
    with publishers(tmp_path, figures(3, 0, in_flight=2, **rooms), figures(4, 1, **rooms)) as (first, second):
        for _ in range(2):
            first.close()
            assert requests(tmp_path) == 7
            archive.write({})
            assert requests(tmp_path) == 7
        assert len(page.names(tmp_path)) == 3
        seen = host.collect(tmp_path)
        assert [life.worker for life in seen.living] == ["1"]
        assert seen.parts() == {("journal", "open"): 2, ("journal", "closed"): 14}
        second.close()
    for _ in range(REMEMBERED + 5):
        with publishers(tmp_path, figures(1)):
            pass
        archive.write({})
    assert requests(tmp_path) == 7 + REMEMBERED + 5


def test_a_reader_that_saw_a_page_before_it_was_added_up_counts_it_once(
    tmp_path: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with publishers(tmp_path, figures(3)):
        pass
    plain = page.read

    def slow(folder: Path, name: str) -> bytes | None:
        data = plain(folder, name)
        monkeypatch.setattr(page, "read", plain)
        archive.write({})
        return data

    monkeypatch.setattr(page, "read", slow)
    assert requests(tmp_path) == 3
    assert requests(tmp_path) == 3


def test_an_ended_workers_page_is_kept_until_its_sum_is_written(
    tmp_path: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with publishers(tmp_path, figures(3)):
        pass
    plain = page.MetricsFile.write

    def refuse(self: page.MetricsFile, data: bytes) -> None:
        if self.name == host.PAST:
            raise OSError("the disk is full")
        plain(self, data)

    monkeypatch.setattr(page.MetricsFile, "write", refuse)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            archive.write({})
        assert requests(tmp_path) == 3
    monkeypatch.setattr(page.MetricsFile, "write", plain)
    archive.write({})
    assert requests(tmp_path) == 3
    assert page.names(tmp_path) == [host.PAST, host.SUPERVISOR]


def test_a_worker_whose_disk_refuses_shows_what_it_showed_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: page.MetricsFile, data: bytes) -> None:
        raise OSError("the disk is full")

    with publishers(tmp_path, figures(3)) as (publisher,):
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            patch.setattr(page.MetricsFile, "write", refuse)
            publisher.publish(figures(4))
            publisher.publish(figures(5))
        assert requests(tmp_path) == 3
        publisher.publish(figures(6))
        assert requests(tmp_path) == 6
    assert len(caplog.records) == 1


def test_an_earlier_gateways_figures_are_forgotten(tmp_path: Path) -> None:
    with publishers(tmp_path, figures(3)):
        pass
    first = Archive(tmp_path)
    first.write({})
    first.close()
    (tmp_path / "worker-0-1.new").touch()  # of one that was killed while it began
    Archive(tmp_path).close()
    assert requests(tmp_path) == 0
    assert {path.stem for path in tmp_path.iterdir()} == {host.SUPERVISOR, host.PAST}


def test_the_supervisors_figures_have_names(tmp_path: Path, archive: Archive) -> None:
    import os

    figures = [["workers_ready", [], 2], ["worker_ends", ["SIGKILL"], 3], ["budget_used", ["a", "day", "5"], 0.5]]
    archive.write({"figures": figures, "processes": {"supervisor": os.getpid(), "worker 0": 2**22 + 1}})
    found = read(text(host.collect(tmp_path)).decode())
    assert found["thriftgate_workers_ready"] == {(): 2}
    assert found["thriftgate_worker_restarts_total"] == {labelled(cause="SIGKILL"): 3}
    assert found["thriftgate_budget_used_ratio"] == {labelled(team="a", window="day", limit_usd="5"): 0.5}
    assert found["thriftgate_process_resident_bytes"][labelled(process="supervisor")] > 1 << 20
    assert found["thriftgate_process_cpu_seconds_total"].keys() == {labelled(process="supervisor")}


def test_without_a_supervisor_there_is_nothing_but_the_worker() -> None:
    alone = Host()
    alone.add(figures(2, overload={"lag_ms": 1.5, "late.batch": 4}), living=True)
    found = read(text(alone).decode())
    assert found["thriftgate_worker_lag_seconds"] == {labelled(worker="0"): 0.0015}
    assert found["thriftgate_shed_total"] == {labelled(reason="late", class_="batch"): 4}
    assert "thriftgate_workers_ready" not in found
