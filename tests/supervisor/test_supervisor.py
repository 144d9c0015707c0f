"""The parent process, from outside: what it starts, keeps alive, and takes down."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from gateway.ledger.journal import segments
from gateway.ledger.rows import Row
from gateway.state.redis.embedded import EmbeddedServer
from tests.supervisor.conftest import Gateway, gone, until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # whole process trees


def valkey(gateway: Gateway) -> EmbeddedServer:
    """A view of the running server, to ask it things."""
    return EmbeddedServer(gateway.data / "valkey")


@contextmanager
def frozen_postgres(url: str) -> Iterator[None]:
    with psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)) as link:
        backend = link.info.backend_pid
        server = parent(backend)
        everyone = [
            server,
            *(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(pid) == server),
        ]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in everyone:
                os.kill(pid, signal.SIGCONT)


def parent(pid: int) -> int:
    """0 for one that has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_it_starts_everything_and_says_where(gateway: Gateway) -> None:
    gateway.start(workers=2).ready()
    facts, worker = gateway.facts(), gateway.worker()
    assert gateway.process
    assert facts["pid"] == gateway.process.pid
    assert len(facts["workers"]) == 2
    assert worker["pid"] in facts["workers"]
    assert facts["tour"] == {"variable": "X"}
    assert facts["local_model"] is None
    assert valkey(gateway).ping()
    told = worker["told"]
    assert told["data_dir"] == str(gateway.data)
    assert told["redis_url"] == f"{facts['valkey']['url']}?peer=own"
    assert worker["omp"] == "1"
    assert gateway.data.stat().st_mode & 0o777 == 0o700
    children = [*facts["workers"], facts["valkey"]["pid"]]
    assert gateway.end() == (0, "")
    assert gone(*children)
    assert not (gateway.data / "runtime.json").exists()


@pytest.mark.heavy
def test_ctrl_c_ends_it_too(gateway: Gateway) -> None:
    gateway.start().ready()
    assert gateway.end(signal.SIGINT)[0] == 0


@pytest.mark.heavy
def test_a_second_gateway_on_the_directory_is_refused(gateway: Gateway) -> None:
    gateway.start().ready()
    second = Gateway(gateway.data)
    second.start()
    code, said = second.end(signal.SIGCONT)
    assert code == 2
    assert f"another gateway (pid {gateway.facts()['pid']}) runs on this directory" in said
    assert gateway.worker()["pid"] in gateway.facts()["workers"]


def test_a_port_that_is_taken_is_said_so(gateway: Gateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = gateway.start(taken.getsockname()[1]).end(signal.SIGCONT)
    assert code == 2
    assert re.search(r"cannot listen on 127\.0\.0\.1:\d+: Address already in use; choose others .* --port", said)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("ledger: {database_url: 'oracle://x'}", "ledger.database_url"),
        ("ledger: {database_url: nonsense}", "ledger.database_url"),
    ],
)
def test_a_database_url_that_cannot_be_meant_is_said_so(gateway: Gateway, config: str, complaint: str) -> None:
    file = gateway.data / "gateway.yaml"
    file.write_text(config)
    code, said = gateway.start(config=file).end(signal.SIGCONT)
    assert code == 2
    assert complaint in said


def test_a_mistake_in_a_policy_is_said_before_anything_starts(gateway: Gateway) -> None:
    policies = gateway.data / "rules"
    policies.mkdir()
    (policies / "a.yaml").write_text("team: a\nnonsense: 1\n")
    code, said = gateway.start(policies=policies).end(signal.SIGCONT)
    assert code == 2
    assert "nonsense" in said
    assert not (gateway.data / "valkey").exists()


def test_old_names_of_keys_are_told_once_a_file_at_the_start(gateway: Gateway, tmp_path: Path) -> None:
    config, folder = tmp_path / "gateway.yaml", tmp_path / "policies"
    folder.mkdir()
    config.write_text("requests: {drain: 5s}\n")
    (folder / "a.yaml").write_text("team: a\nshare: 50%\ntrials: {share: 1%}\n")
    (folder / "b.yaml").write_text("team: b\nrollout: 50%\n")
    gateway.start(config=config, policies=folder).ready()
    _, said = gateway.end()
    assert said.count("old names of settings:") == 2
    assert said.count(f"{config}:1: requests.drain: is now called shutdown.grace_period") == 1
    assert said.count(f"{folder / 'a.yaml'}:2: share: is now called rollout") == 1
    assert said.count(f"{folder / 'a.yaml'}:3: trials: is now called learning") == 1
    assert "b.yaml" not in said


def test_a_worker_that_dies_is_replaced(gateway: Gateway) -> None:
    gateway.start().ready()
    (first,) = gateway.facts()["workers"]
    os.kill(first, signal.SIGKILL)
    until(lambda: gateway.worker()["pid"] != first)
    until(lambda: gateway.facts()["workers"] == [gateway.worker()["pid"]])


@pytest.mark.heavy
def test_a_worker_that_keeps_dying_is_restarted_ever_more_slowly(gateway: Gateway) -> None:
    gateway.start().ready()
    for _ in range(3):
        pid = gateway.worker()["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: gateway.worker()["pid"] != pid)  # type: ignore[misc]
    _, said = gateway.end()
    assert [wait in said for wait in ("again in 0.1 s", "again in 0.2 s", "again in 0.4 s")] == [True] * 3


@pytest.mark.heavy
def test_a_reload_reaches_every_worker(gateway: Gateway) -> None:
    workers = gateway.start(workers=2).all_ready(2)
    gateway.send(signal.SIGHUP)
    reloaded = set()

    def ask() -> bool:
        if (worker := gateway.worker())["reloads"] == 1:
            reloaded.add(worker["pid"])
        return reloaded == set(workers)

    until(ask)


def test_a_stream_that_is_open_is_finished_before_the_end(gateway: Gateway) -> None:
    facts = gateway.start().ready().facts()
    with socket.create_connection((facts["host"], facts["port"])) as stream:
        stream.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        until(lambda: b"." in stream.recv(4096))
        assert gateway.end()[0] == 0
        rest = b""
        while data := stream.recv(4096):
            rest += data
    assert rest.endswith(b"last")


@pytest.mark.heavy
def test_a_second_signal_ends_it_without_waiting_for_streams(gateway: Gateway) -> None:
    facts = gateway.start().ready().facts()
    with socket.create_connection((facts["host"], facts["port"])) as stream:
        stream.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        until(lambda: b"." in stream.recv(4096))
        assert gateway.process
        gateway.process.terminate()
        assert b"finishing open streams" in gateway.next_line()
        assert gateway.end()[0] == 0
        assert b"last" not in stream.recv(4096)
    assert gone(*facts["workers"])


def test_a_state_server_that_dies_comes_back_with_its_data(gateway: Gateway) -> None:
    gateway.start().ready()
    valkey(gateway)._ask("SET tg:epoch kept")
    pid = gateway.facts()["valkey"]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: gateway.facts()["valkey"]["pid"] not in (pid, None) and valkey(gateway).ping())
    assert valkey(gateway)._ask("GET tg:epoch") == b"$4\r\nkept\r\n"


@pytest.mark.heavy
def test_a_state_server_that_freezes_is_replaced(gateway: Gateway) -> None:
    gateway.start().ready()
    pid = gateway.facts()["valkey"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: gateway.facts()["valkey"]["pid"] not in (pid, None) and valkey(gateway).ping())
    assert gone(pid)


@pytest.mark.heavy
def test_a_state_server_that_cannot_read_its_data_starts_empty(gateway: Gateway) -> None:
    gateway.start().ready()
    gateway.end()
    for file in (gateway.data / "valkey" / "appendonlydir").glob("*.manifest"):
        file.write_bytes(b"not a manifest\n")
    gateway.start().ready()
    assert valkey(gateway).ping()
    assert list((gateway.data / "valkey").glob("unreadable-*"))


def test_after_a_kill_nobody_is_left_and_the_next_start_succeeds(gateway: Gateway) -> None:
    gateway.start(workers=2).ready()
    facts = gateway.facts()
    assert gateway.process
    gateway.process.kill()
    again = Gateway(gateway.data)
    again.start(facts["port"]).ready()
    gateway.ended()
    assert again.facts()["port"] == facts["port"]
    assert gone(*facts["workers"], facts["valkey"]["pid"])
    assert again.end() == (0, "")


@pytest.mark.heavy
def test_an_external_server_is_used_as_told(gateway: Gateway, state_url: str) -> None:
    file = gateway.data / "gateway.yaml"
    file.write_text(f"state: {{redis_url: '{state_url}'}}\n")
    gateway.start(config=file).ready()
    assert gateway.facts()["valkey"] is None
    assert gateway.worker()["told"]["redis_url"] == state_url
    assert Path(gateway.worker()["told"]["config"]).read_text() == file.read_text()


@pytest.mark.heavy
def test_serving_begins_while_the_ledger_database_is_away(gateway: Gateway) -> None:
    file = gateway.data / "gateway.yaml"
    file.write_text("ledger: {database_url: 'postgresql://nobody@127.0.0.1:1/none'}\n")
    gateway.start(config=file).ready()
    code, said = gateway.end()
    assert code == 0
    assert "the ledger database cannot be reached" in said


@pytest.mark.heavy
def test_the_end_does_not_wait_for_a_ledger_database_that_is_frozen(gateway: Gateway, postgres_url: str) -> None:
    file = gateway.data / "gateway.yaml"
    file.write_text(f"ledger: {{database_url: '{postgres_url}'}}\n")
    facts = gateway.start(config=file, last_drain_s=1).ready().facts()
    with frozen_postgres(postgres_url):
        segment = segments.Segment.at(gateway.data / "journal", segments.new_lane("9"), 1)
        os.close(segments.create(segment, Row._fields))  # of a worker that is dead: there is something to drain
        code, said = gateway.end()
    assert code == 0
    assert "the next start writes the rest of the journal" in said
    assert gone(*facts["workers"], facts["valkey"]["pid"])
    assert not (gateway.data / "runtime.json").exists()


@pytest.mark.heavy
def test_a_data_directory_that_cannot_be_used_is_said_so(gateway: Gateway) -> None:
    (gateway.data / "file").write_text("")
    gateway.data = gateway.data / "file"
    code, said = gateway.start().end(signal.SIGCONT)
    assert code == 2
    assert "cannot be used as data directory (File exists); give another --data-dir" in said
