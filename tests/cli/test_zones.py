"""Times in the zone of the team that they belong to; exact and in UTC in JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.cli.zones import moment
from gateway.domain.money.windows import zone_named
from gateway.ledger.reports.period import parse_when
from gateway.state.sql.database import Database
from tests.ledger.booked import book, row

MADRID = "Europe/Madrid"
NIGHT = datetime(2026, 7, 1, 22, 30, tzinfo=UTC).timestamp()
"""Half past midnight of 2 July in Madrid."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a gateway of another test may run
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text(
        f"team: search\ntimezone: {MADRID}\nbudget: {{limit_usd: 10, period: total}}\n"
    )
    database = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    database.upgrade()
    book(database, row(team="search", at=NIGHT), row(team="other", at=NIGHT))
    database.close()
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--data-dir", "."], catch_exceptions=False)


def test_a_time_has_its_zone_unless_it_is_utc() -> None:
    assert moment(NIGHT, zone_named(MADRID)) == "2026-07-02 00:30 CEST"
    assert moment(NIGHT, zone_named("UTC")) == "2026-07-01 22:30"


def test_requests_are_shown_in_their_teams_zone() -> None:
    lines = run("logs").stdout.splitlines()
    assert [line.split()[:2] for line in lines] in (
        [["00:30:00", "search"], ["22:30:00", "other"]],
        [["22:30:00", "other"], ["00:30:00", "search"]],
    )
    assert orjson.loads(run("logs", "--team", "search", "--json").stdout)["at"] in (NIGHT, "2026-07-01T22:30:00Z")


def test_a_day_begins_where_the_team_is() -> None:
    assert parse_when("2026-07-02", 0.0, zone_named(MADRID)) == NIGHT - 1800
    day = ("usage", "--since", "2026-07-02", "--until", "2026-07-03", "--json")
    assert orjson.loads(run(*day, "--team", "search").stdout)["total"]["requests"] == 1
    assert orjson.loads(run(*day, "--team", "other").stdout)["total"]["requests"] == 0


def test_keys_are_listed_with_the_zone() -> None:
    run("keys", "create", "--team", "search", "--expires", "90d")
    assert " CE" in run("keys", "list").stdout


def test_days_and_hours_of_a_report_are_the_teams() -> None:
    for team, day, hour in (
        ("search", "2026-07-02", "2026-07-02T00:00+02:00"),
        ("other", "2026-07-01", "2026-07-01T22:00Z"),
    ):
        by = ("usage", "--team", team, "--by", "day,hour")
        (line,) = orjson.loads(run(*by, "--json").stdout)["rows"]
        assert (line["day"], line["hour"], line["requests"]) == (day, hour, 1)
    shown = run("usage", "--team", "search", "--by", "hour").stdout
    assert f"hour ({MADRID})" in shown
    assert "2026-07-02 00:00" in shown


def test_the_quarter_hours_of_one_day_are_one_line_also_when_the_clock_is_changed(folder: Path) -> None:
    database = Database(f"sqlite:///{folder}/ledger.sqlite")
    changed = datetime(2026, 10, 24, 22, 0, tzinfo=UTC).timestamp()  # the day of 25 hours begins in Madrid
    book(database, *(row(team="search", at=changed + hours * 3600) for hours in (0, 0.3, 24.9, 25)))
    database.close()
    report = orjson.loads(run("usage", "--team", "search", "--by", "day", "--since", "2026-10-01", "--json").stdout)
    assert {line["day"]: line["requests"] for line in report["rows"]} == {"2026-10-25": 3, "2026-10-26": 1}


def test_times_without_a_team_are_those_of_the_default_policy(folder: Path) -> None:
    (folder / "policies" / "default.yaml").write_text(f"team: default\ntimezone: {MADRID}\n")
    before = run("ledger", "retain", "--days", "1", "--dry-run").stdout
    assert before.rstrip().endswith("would become sums.")
    assert " CE" in before
