"""The hard mix: what its verdict says, and a small run of the real thing."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from loadtests.budget_hard import Outcome
from loadtests.hard_kill import Kill, unread
from loadtests.hard_mix import UNBOUNDED, question
from loadtests.hard_provider import Call, Meter

REPOSITORY = Path(__file__).parents[2]


def test_questions_are_the_seed_s_and_of_every_kind() -> None:
    drawn = [question(3, number) for number in range(300)]
    assert drawn == [question(3, number) for number in range(300)]
    assert {kind for kind, _ in drawn} > {"stream", "burst", "thinking", "plain", "document", *UNBOUNDED}


def test_the_meter_knows_what_calls_under_way_will_cost() -> None:
    meter, calls = Meter(), (Call("plain", 100, 50, generated=20), Call("plain", 100, 50, generated=10))
    for call in calls:
        meter.begin(call)
    meter.end(calls[0])
    assert meter.bill_usd == pytest.approx((200 * 1 + 30 * 10) / 1e6)
    assert meter.final_usd == pytest.approx((200 * 1 + 70 * 10) / 1e6)
    assert meter.open == 1


@pytest.mark.parametrize(
    ("outcome", "missed"),
    [
        (Outcome(1, False, overshoot=-0.001, usable=0.99), ()),
        (Outcome(1, False, overshoot=0.0011, usable=0.99), ("overshoot",)),
        (Outcome(1, False, usable=0.96, unsettled=0.02), ("usable", "unsettled")),
        (Outcome(1, False, usable=0.99, unsettled=-0.002), ("unsettled",)),
        (Outcome(1, False, usable=0.99, false_refusals=1), ("false refusals",)),
        (Outcome(1, True, overshoot=0.01, unread=0.0095, unsettled=0.01, usable=0.98), ()),
        (
            Outcome(1, True, overshoot=0.01, unread=0.001, unsettled=0.01, silent=0.01, usable=0.98),
            ("overshoot", "unsettled"),
        ),
        (Outcome(1, True, overshoot=-0.01, unsettled=0.005, usable=0.98), ("unsettled",)),
        (Outcome(1, True, overshoot=-0.01, unsettled=-0.005, usable=0.98), ()),
    ],
)
def test_only_what_lay_in_a_killed_workers_sockets_is_its_allowance(outcome: Outcome, missed: tuple[str, ...]) -> None:
    assert outcome.missed == missed


def test_tokens_in_bytes_that_were_not_read_are_counted_back_to_the_last_whole_event() -> None:
    call = Call("plain", 100, 50)
    for size, tokens in ((200, 0), (220, 5), (240, 10)):
        call.wrote(size, tokens)
    assert call.written == 15
    assert [call.written_within(count) for count in (0, 1, 240, 241, 460, 660)] == [15, 5, 5, 0, 0, 0]


@pytest.fixture
def hearing() -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """The provider's end of a connection, and the process that has the other and reads nothing."""
    program = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        process = subprocess.Popen([sys.executable, "-c", program, port], stdin=subprocess.PIPE)
        connection, _ = server.accept()
        try:
            yield connection, process
        finally:
            connection.close()
            process.kill()
            process.communicate()


def test_what_a_process_has_not_read_is_seen_from_outside(
    hearing: tuple[socket.socket, subprocess.Popen[bytes]],
) -> None:
    connection, process = hearing
    (_, client), (_, provider) = connection.getpeername(), connection.getsockname()
    assert unread(process.pid, provider) == {client: 0}
    connection.sendall(b"x" * 12_345)
    assert unread(process.pid, provider) == {client: 12_345}


def test_a_worker_that_is_killed_leaves_its_unread_and_its_silent_tokens(
    hearing: tuple[socket.socket, subprocess.Popen[bytes]],
) -> None:
    connection, process = hearing
    meter, call = Meter(), Call("plain", 100, 5000, generated=1100, port=connection.getpeername()[1])
    elsewhere = Call("plain", 100, 5000, generated=700, port=1)
    meter.begin(call)
    meter.begin(elsewhere)
    connection.sendall(b"x" * 500)
    call.wrote(300, 20)
    call.wrote(500, 80)
    blow = Kill(meter, connection.getsockname()[1])
    blow.strike(process.pid)
    assert process.wait(10) == -signal.SIGKILL
    call.generated += 7
    lost = blow.lost()
    assert (lost.calls, lost.unread_usd) == (1, pytest.approx(80 * 10 / 1e6))
    assert lost.silent_usd == pytest.approx(1000 * 10 / 1e6)
    assert lost.later_usd == pytest.approx(7 * 10 / 1e6)


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_a_run_keeps_every_bar(tmp_path: Path) -> None:
    """Of one seed; `python -m loadtests budget --mix hard --seeds 60` takes more."""
    options = ["--limit-usd", "3", "--clients", "32", "--kill", "never", "--seed", "11", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "loadtests", "budget", "--mix", "hard", *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout
    (found,) = orjson.loads((tmp_path / "budget-hard.json").read_bytes())["outcomes"]
    assert found["overshoot"] <= 0.001
    assert found["usable"] >= 0.97
    assert found["escalated"]
    assert abs(found["unsettled"]) <= 0.001
