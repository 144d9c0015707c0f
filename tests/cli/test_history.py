"""The invented history: marked, reproducible, whole in the ledger's chain, and never mixed with spend."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from urllib.request import Request, urlopen

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.develop.history import GATEWAY, TEAMS, checks, rows
from gateway.cli.main import cli
from gateway.policy.load import load_policies
from gateway.routing.aliases import resolve
from gateway.settings.files import parse
from gateway.settings.gateway import Ceilings, GatewayConfig
from gateway.state.sql.database import Database
from tests.ledger.booked import book, row
from tests.support.waiting import wait_until

NOW = 1_800_000_000.0
REPOSITORY = Path(__file__).parents[2]


def run(data: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--data-dir", str(data)], catch_exceptions=False)


def test_every_invented_row_is_marked_and_the_same_again() -> None:
    config = parse(GATEWAY, GatewayConfig, "gateway.yaml")
    found = list(rows(30, NOW, config))
    assert found == list(rows(30, NOW, config))
    assert len({one.id for one in found}) == len(found) > 3_000
    assert all(one.team.startswith("demo-") and orjson.loads(one.tags) == {"demo": "history"} for one in found)
    assert NOW - 30 * 86_400 <= found[0].at <= found[-1].at <= NOW
    assert {one.cache for one in found} == {"miss", "exact", "semantic"}
    assert all(one.cost_pico is not None for one in found)
    assert len({one.end_user for one in found}) == 13
    assert {bool(one.session) for one in found if one.end_user} == {True}
    assert {one.session for one in found if not one.end_user} == {""}
    counts = checks(found)
    assert sum(one["hits"] for one in counts) == sum(one.cache == "semantic" for one in found)
    assert 0 < sum(one["wrong"] for one in counts) < sum(one["checked"] for one in counts)


def test_what_is_asked_is_answered_by_the_simulated_backend_alone(tmp_path: Path) -> None:
    run(tmp_path, "dev", "history", "--days", "1")
    policy = load_policies([tmp_path / "policies"], Ceilings()).policies[TEAMS[0].name]
    backends = parse(GATEWAY, GatewayConfig, "gateway.yaml").backends or ()
    assert [each.name for each in resolve("auto", policy, backends).backends] == ["simulated-large"]


def test_it_is_in_the_ledgers_chain_and_in_the_reports(tmp_path: Path) -> None:
    done = run(tmp_path / "demo", "dev", "history", "--days", "3", "--json")
    assert done.exit_code == 0, done.output
    made = orjson.loads(done.stdout)
    assert made["rows"] > 200
    assert run(tmp_path / "demo", "ledger", "verify").exit_code == 0
    report = orjson.loads(run(tmp_path / "demo", "usage", "--by", "team", "--json").stdout)
    assert {one["team"] for one in report["wrong_hits"]} == {team.name for team in TEAMS}
    assert {line["team"] for line in report["rows"]} == {team.name for team in TEAMS}
    assert report["total"]["requests"] == made["rows"]
    again = orjson.loads(run(tmp_path / "demo", "dev", "history", "--json").stdout)
    assert again["rows"] == 0
    folder = tmp_path / "demo"
    words = ("savings", "--config", str(folder / "gateway.yaml"), "--policies", str(folder / "policies"), "--json")
    saved = orjson.loads(run(folder, *words).stdout)
    assert float(saved["net_saved_usd"]) > 0


def test_a_ledger_with_other_teams_gets_no_invented_row(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    database.upgrade()
    book(database, row(team="search"))
    database.close()
    done = run(tmp_path, "dev", "history")
    assert done.exit_code == 1
    assert "has requests of search" in done.output


def test_the_directory_must_be_named() -> None:
    done = CliRunner().invoke(cli, ["dev", "history"])
    assert done.exit_code == 2
    assert "--data-dir" in done.output


@pytest.mark.parametrize("days_later", range(0, 31, 6))
def test_only_a_budget_that_warns_is_exceeded(days_later: int) -> None:
    """A gateway never exceeds a budget that refuses, so no invented one may be seen to be exceeded."""
    spent: dict[tuple[str, str], int] = defaultdict(int)
    for one in rows(30, NOW + days_later * 86_400, parse(GATEWAY, GatewayConfig, "gateway.yaml")):
        spent[one.team, time.strftime("%Y-%m", time.gmtime(one.at))] += one.cost_pico or 0
    for team in TEAMS:
        most = max(cost for (name, _), cost in spent.items() if name == team.name)
        assert most < team.budget_usd * 10**12 or team.exhausted == "warn"


@pytest.mark.heavy
def test_the_page_of_a_demo_with_history_is_opened_with_the_only_key_that_is_printed(tmp_path: Path) -> None:
    made = run(tmp_path, "dev", "history", "--days", "2", "--no-key")
    assert "tg-" not in made.output
    files = ("--config", str(tmp_path / "gateway.yaml"), "--policies", str(tmp_path / "policies"))
    words = ("serve", "--demo", "--port", "0", "--data-dir", str(tmp_path), *files)
    log = tmp_path / "terminal"
    with log.open("wb") as file:
        gateway = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli.main", *words],
            stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=tmp_path,
            env={**os.environ, "TOUR": "0", "PYTHONPATH": str(REPOSITORY)},
        )  # fmt: skip
    try:
        wait_until(lambda: "Still serving on" in log.read_text(), 30)
        told = log.read_text()
        (secret,) = set(re.findall(r"tg-[A-Za-z0-9_-]{32,}", told))
        assert f"savings --team {TEAMS[0].name}" in told
        base = re.search(r"Base URL\s+(\S+)/v1", told)
        assert base
        with urlopen(
            Request(f"{base[1]}/dashboard/viewer", headers={"authorization": f"Bearer {secret}"}), timeout=10
        ) as reply:
            assert set(orjson.loads(reply.read())["teams"]) == {team.name for team in TEAMS}
    finally:
        gateway.send_signal(signal.SIGINT)
        assert gateway.wait(timeout=20) == 0


@pytest.mark.parametrize("days", ["0", "366"])
def test_the_days_are_limited(days: str, tmp_path: Path) -> None:
    assert run(tmp_path, "dev", "history", "--days", days).exit_code == 2
