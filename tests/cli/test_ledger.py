"""`thriftgate ledger` from the outside: exit codes, JSON, and what it does to a ledger."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.ledger.journal import segments
from gateway.ledger.journal.append import append
from gateway.ledger.rows import Row
from gateway.state.leases import orphaned_holds
from gateway.state.leases.orphaned_holds import OrphanedHold
from gateway.state.sql.database import Database
from tests.ledger.samples import row

CONFIG = """\
ledger: {keep_days: 30}
backends:
  - name: large
    kind: openai
    base_url: http://127.0.0.1:9/v1
    model: big
    tier: large
    price: {input: 1, output: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "data").mkdir()
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    paths = ["--config", str(folder / "gateway.yaml"), "--data-dir", str(folder / "data")]
    return CliRunner().invoke(cli, ["ledger", *words, *paths], catch_exceptions=False)


def json_of(folder: Path, *words: str) -> Any:
    result = run(folder, *words, "--json")
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def fill(folder: Path, *rows: Row) -> None:
    append(folder / "data" / "journal", rows, "test")
    assert json_of(folder, "drain") == {"rows": len(rows)}


def meddle(folder: Path, statement: str) -> None:
    database = Database(f"sqlite:///{folder}/data/ledger.sqlite")
    with database.begin() as connection:
        connection.exec_driver_sql(statement)
    database.close()


def now(number: int, **facts: Any) -> Row:
    return row(f"req_{number}", **{"at": time.time() - 60, **facts})


def test_an_untouched_ledger_verifies_and_a_touched_one_does_not(folder: Path) -> None:
    assert "no chain yet" in run(folder, "verify").output
    fill(folder, now(1), now(2))
    verdict = json_of(folder, "verify")
    assert (verdict["ok"], verdict["chains"][0]["entries"], verdict["chains"][0]["anchored"]) == (True, 2, 2)
    meddle(folder, "UPDATE ledger SET cost_pico = 0 WHERE id = 'req_2-1'")
    result = run(folder, "verify")
    assert result.exit_code == 1
    assert "entry 2 req_2-1: it was altered" in result.output
    findings = orjson.loads(run(folder, "verify", "--json").stdout)["findings"]
    assert [(one["seq"], one["row"]) for one in findings] == [(2, "req_2-1")]


def test_a_damaged_anchor_is_told_apart_from_a_damaged_ledger(folder: Path) -> None:
    fill(folder, now(1))
    (folder / "data" / "ledger.anchor").write_text("{")
    result = run(folder, "verify")
    assert result.exit_code == 1
    assert "ledger.anchor: is damaged" in result.output


def test_old_rows_become_sums_when_it_is_meant(folder: Path) -> None:
    old = time.time() - 40 * 86400
    fill(folder, now(1, at=old), now(2, at=old), now(3))
    assert json_of(folder, "retain", "--dry-run")["rows"] == 2
    assert json_of(folder, "retain", "--dry-run", "--days", "90")["rows"] == 0
    assert json_of(folder, "retain")["rows"] == 2
    assert json_of(folder, "retain")["rows"] == 0
    verdict = json_of(folder, "verify")
    assert (verdict["ok"], verdict["chains"][0]["removed"]) == (True, 2)
    (folder / "gateway.yaml").write_text("{}")
    assert "ledger.keep_days" in run(folder, "retain").output


def test_a_price_that_comes_late_is_given_to_the_rows_that_lack_it(folder: Path) -> None:
    fill(folder, now(1, cost_pico=None), now(2, cost_pico=0), now(3), now(4, cost_pico=None, backend="gone"))
    listed = [(one["backend"], one["why"], one["rows"]) for one in json_of(folder, "unpriced")]
    assert listed == [("large", "unpriced", 1), ("gone", "unpriced", 1), ("large", "zero", 1)] or listed == [
        ("gone", "unpriced", 1),
        ("large", "unpriced", 1),
        ("large", "zero", 1),
    ]
    told = {"rows": 1, "cost_usd": "0.00005", "left": 1, "written": False}
    assert json_of(folder, "reprice", "--model", "big", "--since", "1d") == told
    assert json_of(folder, "reprice", "--model", "big", "--since", "1d", "--yes") == {**told, "written": True}
    assert json_of(folder, "reprice", "--model", "big", "--yes") == {**told, "rows": 0, "cost_usd": "0"}
    assert json_of(folder, "reprice", "--model", "big", "--zero", "--yes")["rows"] == 1
    assert [one["backend"] for one in json_of(folder, "unpriced")] == ["gone"]
    assert json_of(folder, "verify")["chains"][0]["entries"] == 6
    mistyped = run(folder, "reprice", "--model", "bgi")
    assert mistyped.exit_code == 0
    assert "no attempt in the ledger has the model or backend 'bgi'." in mistyped.output


@pytest.mark.parametrize("words", [("unpriced", "--since", "soon"), ("reprice", "--model", "m", "--until", "x")])
def test_a_period_that_is_none_is_refused(folder: Path, words: tuple[str, ...]) -> None:
    assert run(folder, *words).exit_code == 2


def test_forgetting_keeps_the_rows(folder: Path) -> None:
    gone = json_of(folder, "forget", "--end-user", "ada")
    assert (gone["erased"], gone["rows"], gone["pseudonym"][:3]) == (0, 0, "eu_")
    fill(folder, now(1, end_user=gone["pseudonym"]))
    assert json_of(folder, "forget", "--end-user", "ada")["rows"] == 1
    assert json_of(folder, "forget", "--end-user", gone["pseudonym"])["rows"] == 1
    assert json_of(folder, "verify")["ok"]


def test_what_a_lost_host_holds_is_named_and_released_only_when_it_is_meant(folder: Path) -> None:
    worker = "0badcafe-7f-0-aa@far"
    counter = "tg:{search}:lease:budget:team:usd:0:month:UTC:1767225600"
    assert "Nothing is held for far" in run(folder, "release", "far").output
    database = Database(f"sqlite:///{folder}/data/ledger.sqlite")
    with database.begin() as connection:
        orphaned_holds.record(connection, [OrphanedHold(worker, counter, "search", 12 * 10**9, 500 * 10**9, 1.0)])
    database.close()
    paths = ["--config", str(folder / "gateway.yaml"), "--data-dir", str(folder / "data"), "--json"]
    doctor = CliRunner().invoke(cli, ["doctor", *paths], catch_exceptions=False)
    assert doctor.exit_code == 1
    (found,) = [one for one in orjson.loads(doctor.stdout) if one["what"].startswith("host far")]
    assert "1 dead worker since 1970-01-01T00:00:01Z" in found["what"]
    assert "12.0000 USD of 500 USD (team search, month from 2026-01-01)" in found["what"]
    assert "thriftgate ledger release far" in found["remedy"]
    shown = {"worker": worker, "budget": "team search, month from 2026-01-01", "amount": "12.0000 USD of 500 USD"}
    assert json_of(folder, "release", worker) == [{**shown, "released": False}]
    assert json_of(folder, "release", "far", "--yes") == [{**shown, "released": True}]
    assert run(folder, "release", "far").exit_code == 1


def test_a_worker_whose_journal_lies_here_is_not_released_but_drained(folder: Path) -> None:
    worker = "0badcafe-7f-0-aa@far"
    fill(folder, now(1))
    database = Database(f"sqlite:///{folder}/data/ledger.sqlite")
    with database.begin() as connection:
        orphaned_holds.record(connection, [OrphanedHold(worker, "tg:{a}:lease:b", "a", 12, 500, 1.0)])
    journal = folder / "data" / "journal"
    os.close(segments.create(segments.Segment.at(journal, segments.new_lane("0", worker), 1), Row._fields))
    refused = run(folder, "release", "far", "--yes")
    assert refused.exit_code == 1
    assert "thriftgate ledger drain" in refused.output
    run(folder, "drain")
    with database.read() as connection:
        assert orphaned_holds.held(connection) == []
        assert orphaned_holds.which_drained(connection, [worker]) == {worker}
    database.close()
