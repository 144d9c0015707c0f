"""`thriftgate alerts` beside a real ledger: what it prints, and how it exits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.alerts.alert import KINDS, alert
from gateway.alerts.delivery import deliveries
from gateway.cli.main import cli
from gateway.domain.policy import AlertsPolicy, Notify
from gateway.state.sql.database import Database

POLICY = """\
team: search
budget: {limit_usd: 5, notify: [{webhook: env:NOT_SET_HOOK}]}
alerts:
  notify: [{slack: env:NOT_SET_SLACK, severity: critical}]
  escalate_to: [{email: env:NOT_SET_MAIL}]
"""


def run(folder: Path, *arguments: str) -> Result:
    options = ["--data-dir", str(folder / "data"), "--policies", str(folder / "policies")]
    return CliRunner(env={"COLUMNS": "250"}).invoke(cli, ["alerts", *arguments, *options])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger with one critical alert, and a dead letter about it."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text(POLICY)
    (tmp_path / "data").mkdir()
    database, now = Database(f"sqlite:///{tmp_path}/data/ledger.sqlite"), time.time()
    database.upgrade()
    with database.begin() as connection:
        facts = alert("search/month/x", "threshold", "critical", "search", {"text": "spent"})
        deliveries.write(connection, facts, "search", [Notify(webhook="env:HOOK")], AlertsPolicy(), now)
        (letter,) = deliveries.claim(connection, now, 20.0)
        deliveries.refused(connection, letter, now + deliveries.GIVE_UP_S, "answered 500")
    database.close()
    return tmp_path


def values(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def test_list_shows_alerts_and_letters(folder: Path) -> None:
    listed = values(run(folder, "list", "--json"))
    assert [(one["target"], one["severity"]) for one in listed] == [("", "critical"), ("env:HOOK", "critical")]
    assert "given up" in run(folder, "list").stdout
    assert "There is no team 'nobody'" in run(folder, "list", "--team", "nobody").stderr


def test_test_sends_one_of_each_kind_to_everyone_and_fails_when_one_does_not_listen(folder: Path) -> None:
    result = run(folder, "test", "--team", "search", "--json")
    assert result.exit_code == 1
    answers = orjson.loads(result.stdout)
    assert set(answers) == {"env:NOT_SET_HOOK", "slack:env:NOT_SET_SLACK", "email:env:NOT_SET_MAIL"}
    assert all(set(kinds) == set(KINDS) for kinds in answers.values())
    lines = run(folder, "test", "--team", "search").stdout.splitlines()
    assert lines[0].startswith("slack:env:NOT_SET_SLACK: not accepted: env:NOT_SET_SLACK is not set")
    (folder / "policies" / "other.yaml").write_text("team: other\n")
    nobody = run(folder, "test", "--team", "other")
    assert (nobody.exit_code, "names no receiver" in nobody.stdout) == (0, True)


def test_acknowledge_says_who_looks_after_it(folder: Path) -> None:
    assert run(folder, "acknowledge", "search/month/x").stdout == "Acknowledged: search/month/x\n"
    seen = values(run(folder, "list", "--json"))[0]
    assert seen["acknowledged_by"].endswith("(command line)")
    unknown = run(folder, "acknowledge", "search/nothing")
    assert (unknown.exit_code, "There is no alert search/nothing" in unknown.stderr) == (1, True)


def test_dead_letters_are_listed_and_tried_again(folder: Path) -> None:
    (dead,) = values(run(folder, "dead-letters", "--json"))
    assert (dead["target"], dead["last_error"]) == ("env:HOOK", "answered 500")
    assert "answered 500" in run(folder, "dead-letters").stdout
    assert values(run(folder, "dead-letters", "--retry", "--json")) == {"retried": 1}
    assert run(folder, "dead-letters").stdout.startswith("No delivery was given up")
