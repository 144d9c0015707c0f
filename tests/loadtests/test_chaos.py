"""The chaos run finds what is wrong with the books, and finds nothing wrong with ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from loadtests.chaos_clients import Received
from loadtests.chaos_mix import mixture, parse_ask
from loadtests.chaos_provider import INPUT_TOKENS, Call
from loadtests.chaos_reconcile import LedgerRow, Report, reconcile
from loadtests.chaos_schedule import VICTIMS, schedule

REPOSITORY = Path(__file__).parents[2]
PRICES = {"first": (1, 4), "second": (2, 10)}


class Accounts:
    """A run in which all is well: one answer read whole, one left after 3 tokens, one tried again, one refused."""

    def __init__(self) -> None:
        self.received = [
            Received(0, "plain", 200, tokens=5, whole=True),
            Received(1, "hang-up", 200, tokens=3, left=True),
            Received(2, "retry", 200, tokens=2, whole=True),
            Received(3, "failing", 502),
            Received(4, "stream"),
        ]
        self.calls = [
            Call(0, "first", "r0-1", 0.0, False, 200, sent=5, whole=True),
            Call(1, "first", "r1-1", 0.0, True, 200, sent=6, hung_up=True),
            Call(2, "first", "r2-1", 0.0, True, 500),
            Call(2, "second", "r2-2", 0.0, True, 200, sent=2, whole=True),
            Call(3, "first", "r3-1", 0.0, False, 503),
        ]
        self.rows = [
            row(0, 1, "ok", 5),
            row(1, 1, "interrupted", 4),
            row(2, 1, "failed", 0, input_tokens=0),
            row(2, 2, "ok", 2, backend="second"),
            row(3, 1, "failed", 0, input_tokens=0),
            row(4, 1, "interrupted", 0),
        ]

    def report(self) -> Report:
        return reconcile(self.received, self.calls, self.rows, PRICES)

    def change(self, what: str, index: int, **facts: Any) -> None:
        entries = getattr(self, what)
        entries[index] = replace(entries[index], **facts)


def row(
    number: int,
    attempt: int,
    outcome: str,
    output_tokens: int,
    *,
    backend: str = "first",
    input_tokens: int = INPUT_TOKENS,
) -> LedgerRow:
    price = PRICES[backend]
    cost = (input_tokens * price[0] + output_tokens * price[1]) * 10**6
    return LedgerRow(
        f"r{number}-{attempt}", f"ask-{number}", attempt, backend, outcome, input_tokens, output_tokens, cost
    )


def test_accounts_that_agree_are_found_so() -> None:
    report = Accounts().report()
    assert (report.wrong, report.difference_pico, report.never_called) == ({}, 0, 1)
    assert report.answers == {"whole": 2, "left by the client": 1, "refused": 1, "lost before a byte": 1}


PLANTED: dict[str, tuple[str, Callable[[Accounts], object]]] = {
    "a row is missing": ("no row", lambda a: a.rows.pop(1)),
    "the row of a whole answer is missing": ("an answer without a row", lambda a: a.rows.pop(0)),
    "a row too many, of no call": ("tokens that nobody sent", lambda a: a.rows.append(row(4, 2, "failed", 1))),
    "a row too many, of no request": ("a row of no request", lambda a: a.rows.append(row(9, 1, "interrupted", 0))),
    "a call that is repeated in secret": ("two calls of one attempt", lambda a: a.calls.append(a.calls[0])),
    "a whole answer is interrupted": (
        "an answer that was read to its end differs",
        lambda a: a.change("rows", 0, outcome="interrupted"),
    ),
    "a whole answer has a token too few": (
        "a whole answer's tokens differ",
        lambda a: a.change("rows", 0, output_tokens=4),
    ),
    "a whole answer costs a pico-dollar more": (
        "an answer that was read to its end differs",
        lambda a: a.change("rows", 0, cost_pico=a.rows[0].cost_pico + 1),
    ),
    "the client got more than is booked": (
        "fewer tokens than the client received",
        lambda a: a.change("received", 1, tokens=5),
    ),
    "more is booked than was sent": (
        "more tokens than the provider sent",
        lambda a: a.change("calls", 1, sent=3),
    ),
    "a refusal costs": ("a failed attempt that cost", lambda a: a.change("rows", 2, cost_pico=1)),
    "an answer is booked as failed": ("a failed attempt that cost", lambda a: a.change("calls", 2, status=200)),
    "the wrong backend is booked": ("the wrong backend", lambda a: a.change("calls", 0, backend="second")),
    "an attempt is left open": ("an outcome that cannot be", lambda a: a.change("rows", 1, outcome="open")),
    "a request hangs": ("hung", lambda a: a.change("received", 4, hung=True)),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_wrong_is_found(planted: str) -> None:
    what, plant = PLANTED[planted]
    accounts = Accounts()
    plant(accounts)
    assert what in accounts.report().wrong


def test_the_same_seed_asks_and_strikes_the_same() -> None:
    first, second = mixture(3), mixture(3)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]
    assert schedule(3, 20_000, 5, 2) == schedule(3, 20_000, 5, 2) != schedule(4, 20_000, 5, 2)


def test_every_part_is_struck_as_often_as_was_asked() -> None:
    blows = schedule(1, 20_000, 5, 2)
    assert len(blows) == 7 * len(VICTIMS)
    assert all(sum(b.victim == victim and b.deed == "kill" for b in blows) == 5 for victim in VICTIMS)
    assert [blow.after for blow in blows] == sorted(blow.after for blow in blows)


def test_the_provider_reads_its_part_in_the_request() -> None:
    ask = next(mixture(1))
    assert parse_ask(orjson.loads(ask.body())) == (ask.number, list(ask.steps))


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_every_attempt_has_one_right_row_after_kills(tmp_path: Path) -> None:
    words = ["--quick", "--requests", "400", "--seed", "11", "--json", "--keep", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-m", "loadtests.chaos", *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=110
    )
    assert done.stdout, done.stderr[-2000:]
    told = orjson.loads(done.stdout)
    assert (told["wrong"], done.returncode) == ({}, 0), told["examples"]
    assert told["requests"] >= 400
    assert told["least_in_flight_at_a_blow"] >= 32
    assert set(told["blows"]) == {f"{victim} kill" for victim in VICTIMS}
