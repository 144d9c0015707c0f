"""Every table fits the terminal, and breaks no id, name, date or price."""

from __future__ import annotations

import os
import time
from pathlib import Path

import orjson
import pytest
from blockbuster import BlockBuster
from click.testing import CliRunner, Result
from rich.cells import cell_len

from gateway.alerts.alert import alert
from gateway.alerts.delivery import deliveries
from gateway.cli import tables
from gateway.cli.main import cli
from gateway.domain.policy import AlertsPolicy, Notify
from gateway.ledger.store.evidence import Finding, write
from gateway.policy import keys
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import save_plan
from gateway.routing.strategy.strategy import State, Strategy
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from tests.ledger.booked import book, row

TEAM = "customer-support-and-operations1"
MODEL = "claude-sonnet-4-6-long-context-2026-0101"
OTHER = "gpt-oss-120b-instruct-quantised-eu-west1"
SESSION = "9b2336d5-6a7e-40c1-87f7-2de0c3e2d2a2"
ASKED = [f"req_{number:032x}" for number in range(4)]
CONFIG = f"""\
backends:
  - {{name: {MODEL}, kind: openai, base_url: "http://127.0.0.1:9/v1", model: m, price: {{input: 3.125, output: 15.25}}}}
  - {{name: {OTHER}, kind: openai, base_url: "http://127.0.0.1:9/v1", model: o, price: {{input: 0.15, output: 0.6}}}}
local_model: {{enabled: false}}
"""
POLICY = f"team: {TEAM}\nmodels: {{auto: {{candidates: [{MODEL}, {OTHER}]}}}}\nbudget: {{limit_usd: 100}}\n"
assert (len(TEAM), len(MODEL), len(OTHER), len(SESSION), len(ASKED[0])) == (32, 40, 40, 36, 36)

COMMANDS: dict[str, tuple[str, ...]] = {
    "usage": (TEAM,),
    "usage --by team,day": (TEAM,),
    "usage --by team,model": (TEAM, MODEL),
    "usage --by agent,session": ("claude_code", SESSION),
    "usage --by team --savings": (TEAM, MODEL, "2.47"),
    "savings": (TEAM, MODEL),
    "advise": (TEAM,),
    "breakeven": (MODEL, "A100 80GB", "2,160.00"),
    "prices list claude-sonnet": ("anthropic/claude-sonnet-4-6",),
    "prices check": (MODEL, "3.125", "15.25"),
    "prices diff --from {folder}/map.json": ("anthropic/claude-sonnet-4-6",),
    "prices unpriced": (OTHER, "{day}"),
    "reconcile {folder}/invoice.json --provider generic": (MODEL,),
    f"context report --team {TEAM}": (),
    "alerts dead-letters": (TEAM, "{day}"),
    "keys list": (TEAM, "key_", "{day}"),
    "backends list": (MODEL, OTHER, "3.125 in, 15.25 out"),
    "backends add": ("openrouter", "anthropic"),
    f"policy show {TEAM}": ("models.auto.candidates",),
    "policy replay {folder}/policies/team.yaml": (TEAM,),
    f"simulate {{folder}}/log.jsonl --team {TEAM}": ("at another model", f"from gpt-4o to {OTHER}"),
    f"explain hello --team {TEAM}": (MODEL, OTHER),
    "quality learned": (TEAM, OTHER),
    "router plan status --artefact {folder}/plan.json": (MODEL, "0.9000"),
    "router evaluate {folder}/" + f"{MODEL}.jsonl": (MODEL,),
    "context trim {folder}/request.json --max-tokens 25": ("assistant",),
    "context explain {folder}/request.json": ("assistant",),
    "context doctor": (SESSION, ASKED[3], MODEL),
    "top --once": (TEAM, MODEL, ASKED[3]),
    "status": ("{folder}/data",),
}
"""Command → texts of which each must stand on one line."""
DRAWN = {
    *("advise", "context_report"),
    *("alerts", "add_backend", "backends", "breakeven", "context", "context_doctor", "context_explain", "explain"),
    *("keys", "learning", "policy", "policy_replay", "prices", "reconcile", "repricing", "router_tables", "savings"),
    "simulate",
    *("statement", "status", "top", "usage_table"),
}
"""Modules whose tables the commands above print."""
ELSEWHERE = {"cache_held", "compare", "context_bill", "demo", "dev", "experiments"}
"""Modules whose commands need a running gateway or sessions. Their tables follow the same rule."""


@pytest.fixture(autouse=True)
def may_block(no_blocking_calls: BlockBuster) -> None:
    """A command serves nobody while it reads its files."""
    no_blocking_calls.deactivate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t")
    (folder / "gateway.yaml").write_text(CONFIG)
    (folder / "policies").mkdir()
    (folder / "policies" / "team.yaml").write_text(POLICY)
    turns = [{"role": role, "content": "fine, and you"} for role in ("user", "assistant")]
    (folder / "request.json").write_bytes(orjson.dumps({"model": "auto", "messages": turns}))
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    (folder / "log.jsonl").write_bytes(orjson.dumps({"model": "gpt-4o", "messages": turns[:1], "usage": usage}))
    price = {"litellm_provider": "anthropic", "mode": "chat"}
    price |= {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.6e-05}
    (folder / "map.json").write_bytes(orjson.dumps({"claude-sonnet-4-6": price}))
    invoice = {"date": today(), "model": MODEL, "cost_usd": "12.3456789", "input_tokens": 10}
    (folder / "invoice.json").write_bytes(orjson.dumps([invoice]))
    prompts = [{"prompt": f"What is {number}?", "w": number % 2, "s": 1} for number in range(6)]
    (folder / f"{MODEL}.jsonl").write_bytes(b"\n".join(map(orjson.dumps, prompts)))
    single = Strategy("one backend", MODEL, 0.9, 0.001, {((), ()): State(MODEL, {MODEL: (1.0,)})}, (MODEL,))
    save_plan(Plan((MODEL,), (single,), (single,)), folder / "plan.json")
    paths = Paths(folder / "data")
    database = Database(f"sqlite:///{paths.sqlite}")
    database.upgrade()
    _seed(database)
    database.close()
    return folder


def _seed(database: Database) -> None:
    now = time.time() - 30
    usual = {"team": TEAM, "backend": MODEL, "model": MODEL, "session": SESSION, "agent": "claude_code"}
    usual |= {"organisation": "", "difficulty": 0.2, "duration_ms": 1234.0, "cached_tokens": 0}
    usual |= {"at": now, "cost_pico": 1_234_567_890_123, "input_tokens": 12_345_678, "output_tokens": 2_345_678}
    other = {"backend": OTHER, "model": OTHER, "cost_pico": None, "prices": "", "session": ""}
    hit = {"attempt": 0, "cache": "exact", "saved_pico": 10**12, "cost_pico": 0, "session": ""}
    for id, facts in zip(ASKED, ({}, other, hit, {"at": now + 1}), strict=True):
        book(database, row(id=f"{id}-1", request_id=id, **{**usual, **facts}))
    keys.create(database, TEAM, name="the search backend of the shop", scopes=("inference", "usage", "admin"))
    with database.begin() as connection:
        write(connection, [Finding("r", TEAM, OTHER, MODEL, "shadow", "agreement", 0.9, 0.9, 1.0, 1.0)] * 3, now)
        told = alert(f"{TEAM}/month/x", "threshold", "critical", TEAM, {"text": "spent"})
        deliveries.write(connection, told, TEAM, [Notify(webhook="env:A_HOOK_WITH_A_LONG_NAME")], AlertsPolicy(), now)
        (letter,) = deliveries.claim(connection, now, 20.0)
        deliveries.refused(connection, letter, now + deliveries.GIVE_UP_S, "answered 500: try again later")


def today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def run(folder: Path, command: str, columns: int) -> Result:
    places = ("--config", folder / "gateway.yaml", "--data-dir", folder / "data", "--policies", folder / "policies")
    words = [word.replace("{folder}", str(folder)) for word in command.split()]
    return CliRunner().invoke(cli, [*words, *map(str, places)], env={"COLUMNS": str(columns)})


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_fits_and_breaks_nothing(folder: Path, command: str, columns: int) -> None:
    running = folder / "data" / "runtime.json"
    running.unlink(missing_ok=True)
    if command == "status":
        facts = {"pid": os.getpid(), "url": "http://127.0.0.1:9", "started_at": time.time(), "workers": [1, 2]}
        running.write_bytes(orjson.dumps(facts))
    shown = run(folder, command, columns)
    assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
    lines = shown.output.splitlines()
    assert [line for line in lines if cell_len(line) > columns and " " in line.strip()] == []  # an address stays whole
    for text in COMMANDS[command]:
        whole = text.format(folder=folder, day=today())
        assert any(whole in line for line in lines), (whole, shown.output)


def test_the_commands_above_are_all_that_print_a_table() -> None:
    files = Path(tables.__file__).parent.rglob("*.py")
    found = {path.stem for path in files if "tables.Table(" in path.read_text()}
    assert found == DRAWN | ELSEWHERE


def test_a_row_that_is_too_wide_becomes_a_paragraph_of_its_titles_and_values() -> None:
    table = tables.Table("model", *tables.numbers("cost"), "until", *tables.prose("why"))
    table.add_row("claude-opus-4-6", "1.25", "2026-11-25 01:03", "it is the cheapest backend that is good enough")
    assert text_of(table, 60) == [
        "model            cost  until             why",
        "claude-opus-4-6  1.25  2026-11-25 01:03  it is the cheapest",
        "                                         backend that is",
        "                                         good enough",
    ]
    assert text_of(table, 50) == [
        "claude-opus-4-6 · cost 1.25",
        "  until 2026-11-25 01:03",
        "  why it is the cheapest backend that is good",
        "  enough",
    ]


def test_columns_without_a_value_are_left_out() -> None:
    table = tables.Table("model", "tags", *tables.numbers("cost"))
    table.add_row("a", "", "1.25")
    assert text_of(table, 60) == ["model  cost", "a      1.25"]


def text_of(table: tables.Table, columns: int) -> list[str]:
    console = tables.Output(width=columns)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_share_above_0_is_never_shown_as_0() -> None:
    assert [tables.percent(share) for share in (0, 0.0004, 0.0006, 0.5)] == ["0.0%", "below 0.1%", "0.1%", "50.0%"]


def test_a_path_that_is_longer_than_the_terminal_is_printed_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    path = "/folder-with-a-long-name/file.json"
    tables.sentences(f"The map: {path} is not readable here")
    assert path in capsys.readouterr().out.splitlines()
