"""The whole command, with tiny counts: real gateway, real books, and what happens when they differ or are missing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from loadtests import nginx, rounds
from loadtests.cells import Cell, Size, chosen
from loadtests.measure import Bench, Generator, running_generator
from loadtests.processes import REPOSITORY, Cores
from loadtests.rounds import Limits, Plan, one_round
from loadtests.targets import Target, running_gateway, running_upstream

TINY = Size(rounds=1, requests=40, cpu_s=50.0, least_cpu_s=0.0, seconds=10.0, warm=8)


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """The command has no event loop of its own."""


def test_nginx_that_is_not_there_and_may_not_be_fetched_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(nginx.NotHere, match="not installed"):
        nginx.find(install=False, places=str(tmp_path))


def test_mistakes_on_the_command_line_are_told_in_a_line() -> None:
    run = CliRunner().invoke
    assert "no cell is called '3k'" in run(cli, ["loadtest", "--cells", "3k"]).output
    assert "leave --config and --policies out" in run(cli, ["loadtest", "--config", "x"]).output


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_the_command_measures_writes_and_leaves_nothing_running(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loadtests", "--quick", "--cells", "1k,session-messages,session-responses",
         "--requests", "30", "--rounds", "1", "--concurrency", "2", "--no-install-nginx", "--json",
         "--out", str(tmp_path / "out"), "--data-dir", str(tmp_path)],
        capture_output=True, text=True, cwd=REPOSITORY, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found = orjson.loads(done.stdout)
    rows = {row["entry"]: row for row in found["rows"] if row["workload"] == "1k"}
    assert {"direct", "thriftgate"} <= set(rows)
    assert ("nginx" in rows) != ("nginx" in found["not_run"])
    assert rows["thriftgate"]["void"] == ""
    assert rows["thriftgate"]["requests"] >= 2
    agents = [row for row in found["rows"] if row["workload"] != "1k" and row["entry"] == "thriftgate"]
    assert [(row["cell"], row["void"]) for row in agents] == [("session-messages-c1", ""), ("session-responses-c1", "")]
    assert all(row["session_ms"]["median"] > 0 for row in agents)
    assert "limit_usd" in found["files"]["thriftgate"]["policies/load.yaml"]
    assert {"loadtest.json", "loadtest.txt"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "the gateways' data are gone, so they have ended"


def test_a_target_that_cannot_be_had_is_noted_and_the_others_are_measured(tmp_path: Path) -> None:
    cell = replace(chosen("1k", (2,))[0], entries=chosen("1k", (2,))[0].entries[:2])

    def absent(*, install: bool | None) -> Path:
        raise nginx.NotHere("there is none")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nginx, "find", absent)
        results = rounds.run(Plan(TINY, (cell,)), Limits(data=tmp_path), lambda text: None)
    assert results.missing == {"nginx": "there is none"}
    assert [(each.entry, each.void) for each in results.figures] == [("direct", "")]
    assert not any(tmp_path.iterdir())


@pytest.mark.heavy
@pytest.mark.timeout(120)
def test_a_ledger_that_differs_by_one_token_makes_the_row_void(tmp_path: Path) -> None:
    cores, cell = Cores.available(), chosen("1k", (2,))[0]
    with (
        running_upstream(cores) as upstream,
        running_gateway(tmp_path / "gateway", cores, upstream) as target,
        running_generator(cores) as generator,
    ):
        targets = {"thriftgate": target}
        (honest,) = one_round(Bench(generator, upstream, TINY), cell, targets, 1)
        assert honest.void == ""
        assert honest.outcome.right >= 40
        assert honest.cpu_us is not None
        assert honest.cpu_us > 0
        lie = (
            "CREATE TRIGGER lie AFTER INSERT ON ledger BEGIN "
            "UPDATE ledger SET output_tokens = output_tokens + 1 WHERE id = new.id; END"
        )
        assert "upstream: (" in _cooked(generator, upstream, cell, target, lie)


def _cooked(generator: Generator, upstream: int, cell: Cell, target: Target, statement: str) -> str:
    """Why a run is void whose ledger was tampered with."""
    assert target.data is not None
    with sqlite3.connect(target.data / "ledger.sqlite", timeout=10, isolation_level=None) as connection:
        connection.execute(statement)
    bench = Bench(generator, upstream, TINY, _next=50_000)
    return one_round(bench, cell, {"thriftgate": target}, 2)[0].void
