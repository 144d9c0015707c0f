"""What is typed about money is printed: exact in files, readable on a terminal, and mistakes are told."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path

import orjson
import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import insert

from gateway.cli.main import cli
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from gateway.state.sql.tables import hit_checks
from tests.ledger.booked import book, row

CONFIG = """\
prices:
  currency: {code: EUR, per_usd: 0.5, as_of: 2026-01-01}
  discounts: [{provider: openai, percent: 20}]
  credits: [{name: ahead, backend: large, usd: 100}]
backends:
  - {name: large, kind: openai, base_url: "https://api.openai.com/v1", model: gpt-4o}
  - {name: gpu, kind: openai, base_url: "http://127.0.0.1:9/v1", model: qwen, price: {machine_hour_usd: 2}}
  - {name: mystery, kind: openai, base_url: "http://127.0.0.1:9/v1", model: unheard-of}
"""
POLICY = "team: search\nbudget: {limit_usd: 1, window: total}\n"


@pytest.mark.parametrize("words", [("usage",), ("keys", "create", "--team", "search")])
def test_a_directory_in_which_nothing_can_be_written_is_a_mistake_with_a_remedy(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*words, "--data-dir", "/proc/self"])
    assert done.exit_code == 1
    assert "/proc/self: cannot be used as data directory (" in done.output
    assert "give another --data-dir" in done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text(POLICY)
    database = Database(f"sqlite:///{Paths(tmp_path / 'data').sqlite}")
    database.upgrade()
    book(database, row(tags='{"app": "shop"}'), row(team="chat"), row(cost_pico=None, prices=""))
    database.close()
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    places = ("--config", folder / "gateway.yaml", "--data-dir", folder / "data", "--policies", folder / "policies")
    return CliRunner().invoke(cli, [*words, *map(str, places)], env={"COLUMNS": "160"})


def test_json_has_groups_budgets_credits_and_on_demand_the_savings(folder: Path) -> None:
    told = orjson.loads(run(folder, "usage", "--by", "team", "--json", "--savings").stdout)
    assert {one["team"]: one["cost_usd"] for one in told["rows"]} == {"search": "0.0000505", "chat": "0.0000505"}
    assert [(one["team"], one["spent_usd"]) for one in told["budgets"]] == [("search", "0.0000505")]
    assert told["credits"][0]["used_usd"] == "0.000101"
    assert {one["team"] for one in told["savings"]["teams"]} == {"search", "chat"}
    assert "savings" not in orjson.loads(run(folder, "usage", "--json").stdout)


def test_the_table_has_budgets_the_other_currency_and_the_method(folder: Path) -> None:
    text = run(folder, "usage", "--by", "tag:app", "--savings").output
    assert "cost EUR" in text
    assert "1 USD = 0.5 EUR, a fixed rate of 2026-01-01." in text
    assert "Budget total of search: 0.0000505 USD of 1.00 USD (below 0.1%)" in text
    assert "Credit ahead (backend large): 0.000101 of 100 USD used." in text
    assert "Baseline: every answered request on the team's reference" in text


def test_wrong_hits_are_told_with_their_interval_and_those_that_nobody_checked(folder: Path) -> None:
    none = dict.fromkeys(("checked", "wrong", "undecided", "called_wrong", "weight", "weight_squared"), 0)
    some = {"checked": 20, "wrong": 1, "called_wrong": 2, "weight": 40.0, "weight_squared": 80.0, "weight_wrong": 2.0}
    rows = [("search", 1000, 200, some), ("chat", 5, 1, {})]
    database = Database(f"sqlite:///{Paths(folder / 'data').sqlite}")
    with database.begin() as connection:
        for team, lookups, hits, found in rows:
            line = {"team": team, "at": 0, "lookups": lookups, "hits": hits, **none, "weight_wrong": 0.0, **found}
            connection.execute(insert(hit_checks).values(line))
    database.close()
    told = {one["team"]: one for one in orjson.loads(run(folder, "usage", "--json").stdout)["wrong_hits"]}
    assert told["search"]["wrong_of_lookups"] == 0.01
    low, high = told["search"]["interval"]
    text = " ".join(run(folder, "usage").output.split())
    assert (
        "Semantic cache of search: 200 hits in 1,000 look-ups; 1 of 20 checked were wrong, which is 1.00% of "
        f"look-ups (95%: {low:.2%} to {high:.2%}) and 5.0% of hits. 2 were reported as wrong by clients."
    ) in text
    assert "Semantic cache of chat: 1 hits in 5 look-ups; none was checked yet." in text


def test_csv_and_parquet_have_the_same_rows(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run(folder, "usage", "--by", "team,model", "--format", "csv").output)))
    result = run(folder, "usage", "--by", "team,model", "--format", "parquet", "--out", str(folder / "x.parquet"))
    assert (result.exit_code, result.output) == (0, "")
    table = pyarrow.parquet.read_table(folder / "x.parquet").to_pylist()
    assert [one["cost_usd"] for one in table] == [Decimal(one["cost_usd"]) for one in rows]


def test_focus_says_what_is_not_in_it(folder: Path) -> None:
    result = run(folder, "usage", "--format", "focus")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert sum(Decimal(one["BilledCost"]) for one in rows) == Decimal("0.000101")
    assert "Not included: 1 attempts without a known price." in result.stderr
    path = folder / "focus.parquet"
    run(folder, "usage", "--format", "focus-parquet", "--output", str(path))
    assert pyarrow.parquet.read_table(path).num_rows == len(rows)


@pytest.mark.parametrize(
    ("words", "complaint"), [(("--by", "colour"), "cannot group by"), (("--since", "noon"), "no date")]
)
def test_a_report_that_makes_no_sense_is_told(folder: Path, words: tuple[str, ...], complaint: str) -> None:
    result = run(folder, "usage", *words)
    assert (result.exit_code, complaint in result.output) == (2, True)


def test_reconcile_ends_well_only_when_all_matched(folder: Path) -> None:
    invoice = folder / "invoice.csv"
    invoice.write_text("date,model,cost_usd\n2026-01-01,big,0.000101\n")
    words = ("reconcile", str(invoice), "--provider", "generic", "--backend", "large")
    good = run(folder, *words, "--json")
    assert (good.exit_code, orjson.loads(good.stdout)["counts"]["matched"]) == (0, 1)
    invoice.write_text("date,model,cost_usd\n2026-01-01,big,0.2\n")
    bad = run(folder, *words)
    assert bad.exit_code == 1
    assert "differing: 1" in bad.output
    assert "The ledger has 1 attempts without a price" in bad.output
    assert run(folder, *words, "--tolerance", "-1").exit_code == 2


def test_breakeven_compares_what_was_bought_with_machines(folder: Path) -> None:
    since = ("--since", "2026-01-01")
    told = orjson.loads(run(folder, "breakeven", *since, "--json").stdout)
    assert {one["machine"] for one in told["rows"]} == {"gpu", "A100 80GB", "H100 80GB"}
    given = ("--hour-usd", "2.10", "--tokens-per-second", "1800")
    (one,) = orjson.loads(run(folder, "breakeven", *since, *given, "--json").stdout)["rows"]
    assert (one["machine"], one["machine_hour_usd"], one["pays"]) == ("given", "2.1", False)
    assert "API" in run(folder, "breakeven", *since, "--plot", str(folder / "plot.svg")).output
    assert (folder / "plot.svg").read_text().startswith("<?xml")
    assert run(folder, "breakeven", "--hour-usd", "2").exit_code == 2
    tuned = ("--student", "50%", "--training-usd", "10")
    (half,) = orjson.loads(run(folder, "breakeven", *since, *given, *tuned, "--json").stdout)["rows"]
    assert float(half["api_usd"]) == pytest.approx(float(one["api_usd"]) / 2)
    assert "Only 50%" in run(folder, "breakeven", *since, *given, *tuned).output
    assert run(folder, "breakeven", "--training-usd", "10").exit_code == 2
    assert run(folder, "breakeven", "--student", "0%").exit_code == 2
    assert "No hosted model" in run(folder, "breakeven", *since, "--model", "none").output


def test_prices_check_names_discounts_and_what_has_no_price(folder: Path) -> None:
    rows = {one["backend"]: one for one in orjson.loads(run(folder, "prices", "check", "--json").stdout)}
    assert (rows["large"]["input"], rows["large"]["source"]) == ("2", "list openai/gpt-4o, less 20%")
    assert rows["mystery"]["source"].startswith("unpriced")


def test_prices_update_writes_what_changed_and_refuses_what_cannot_be_meant(folder: Path) -> None:
    usual = {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2.5e-06}
    maps = {
        "gpt-4o": usual | {"output_cost_per_token": 9e-06},
        "gpt-5": usual | {"output_cost_per_token": -1},
        "gpt-99": usual | {"output_cost_per_token": 9e-06},
    }
    (folder / "map.json").write_bytes(orjson.dumps(maps))
    source = ("--from", str(folder / "map.json"))
    told = orjson.loads(run(folder, "prices", "diff", *source, "--json").stdout)
    assert told["changed"] == {"openai/gpt-4o": {"output": ["10", "9"]}}
    assert told["new"] == ["openai/gpt-99"]
    result = run(folder, "prices", "update", *source)
    assert result.exit_code == 1
    assert "map.json: gpt-5: output_cost_per_token: must not be negative" in result.output
    listed = orjson.loads(run(folder, "prices", "list", "openai/gpt-4o", "--json").stdout)
    assert [one["output"] for one in listed if one["model"] == "openai/gpt-4o"] == ["9"]
    assert run(folder, "prices", "update", *source, "--new").exit_code == 1
    check = orjson.loads(run(folder, "prices", "list", "gpt-99", "--json").stdout)
    assert check[0]["output"] == "9"


def test_an_own_price_list_with_a_mistake_is_told_with_file_and_key(folder: Path) -> None:
    path = folder / "data" / "prices.json"
    path.write_text('{"as_of": "2026-01-01", "via": "x", "models": [{"provider": "a", "model": "b", "input": -1}]}')
    result = run(folder, "prices", "check")
    assert "models.0 (a/b).input: must be an amount in USD that is not negative" in str(result.exception)


def test_a_period_and_a_team_narrow_it_down(folder: Path) -> None:
    words = ("usage", "--team", "search", "--since", "2026-01-01", "--until", "2026-01-02", "--json")
    told = orjson.loads(run(folder, *words).stdout)
    assert (told["total"]["requests"], told["credits"]) == (2, [])
