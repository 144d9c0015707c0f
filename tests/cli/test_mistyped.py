"""Commands refuse a directory, a team, a period or an id that does not exist, and create nothing for them."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from blockbuster import BlockBuster
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.cli.operation.add_backend import _next
from gateway.cli.teams.client_settings import Connection
from gateway.cli.teams.connect import _tried
from gateway.settings.running import RunningGateway


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_blocking_calls: BlockBuster) -> Path:
    no_blocking_calls.deactivate()  # a command serves nobody while it reads its files
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a gateway of another test may run
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A data directory in which team search has a key."""
    directory = str(tmp_path / "data")
    assert run("keys", "create", "--team", "search", "--data-dir", directory).exit_code == 0
    return directory


MISSING = [
    *("usage", "savings", "logs", "keys list", "alerts list", "advise", "prices unpriced", "prices reprice --model m"),
    *("ledger verify", "ledger drain", "ledger retain --days 3", "ledger forget --end-user ada", "ledger release far"),
    *("router plan rollback", "router refit", "distil forget --team a", "context report --team a"),
]


@pytest.mark.parametrize("words", [command.split() for command in MISSING], ids=" ".join)
def test_a_reading_command_does_not_create_a_missing_data_directory(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*words, "--data-dir", "nosuch")
    assert done.exit_code == 1
    assert "there is no such directory" in done.output
    assert not (tmp_path / "nosuch").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("usage",),
        ("savings",),
        ("logs",),
        ("breakeven",),
        ("keys", "list"),
        ("keys", "revoke", "--yes"),
        ("alerts", "list"),
        ("alerts", "dead-letters"),
        ("alerts", "test"),
        ("quality", "learned"),
        ("router", "refit"),
        ("distil", "forget"),
        ("cache", "flush"),
    ],
)
def test_a_mistyped_team_is_refused(words: tuple[str, ...], data: str) -> None:
    done = run(*words, "--team", "serach", "--data-dir", data)
    assert done.exit_code == 2, done.output
    assert "There is no team 'serach'" in done.output
    assert "search" in done.output


def test_a_team_that_pays_must_exist(data: str, tmp_path: Path) -> None:
    toys = "{name: a, kind: simulated, model: toy}, {name: b, kind: simulated, model: toy}"
    (tmp_path / "gateway.yaml").write_text(f"backends: [{toys}]\n")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hello"}\n')
    words = ("--prompts", "prompts.jsonl", "--max-usd", "1", "--data-dir", data)
    done = run("compare", "a", "b", *words, "--team", "serach")
    assert done.exit_code == 2, done.output
    assert "There is no team 'serach'" in done.output


def test_a_decision_for_a_team_without_a_policy_is_noted(data: str, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text("team: search\n")
    (tmp_path / "gateway.yaml").write_text("backends: [{name: toy, kind: simulated, model: toy}]\n")
    for team, noted in (("search", False), ("serach", True)):
        done = run("explain", "hello", "--team", team, "--data-dir", data)
        assert done.exit_code == 0, done.output
        note = "Note: team serach has no policy of its own, so the policy of team default applies. Did you mean search?"
        assert (note in done.stderr) is noted


@pytest.mark.parametrize("command", ["usage", "savings"])
@pytest.mark.parametrize(
    ("since", "until", "complaint"),
    [("2200-01-01", None, "in the future"), ("7d", "30d", "is not after the start")],
)
def test_an_empty_period_is_refused(command: str, since: str, until: str | None, complaint: str, data: str) -> None:
    done = run(command, "--since", since, *(["--until", until] if until else []), "--data-dir", data)
    assert done.exit_code == 2
    assert complaint in done.output


def test_a_wrong_request_id_is_not_taken_for_a_prompt(data: str) -> None:
    done = run("explain", "req_doesnotexist", "--data-dir", data)
    assert done.exit_code == 2
    assert "is no request id" in done.output


@pytest.mark.parametrize(
    "words",
    [("up", "--data-dir", "file/data"), ("init", "--config", "file/gateway.yaml"), ("backup", "file/copy")],
)
def test_a_folder_that_cannot_be_written_is_named(
    words: tuple[str, ...], data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    monkeypatch.setenv("THRIFTGATE_DATA_DIR", data)
    done = run(*words)
    assert done.exit_code == 1, done.output
    assert "file/" in done.output
    assert isinstance(done.exception, SystemExit)


def test_a_new_key_comes_with_lines_for_the_shell_if_a_gateway_runs(data: str) -> None:
    facts = {"pid": os.getpid(), "url": "http://127.0.0.1:1", "workers": [], "started_at": 0}
    Path(data, "runtime.json").write_bytes(orjson.dumps(facts))
    done = run("keys", "create", "--team", "search", "--data-dir", data)
    assert "export OPENAI_BASE_URL=http://127.0.0.1:1/v1" in done.stderr
    assert done.stdout.split()[0] in done.stderr
    usage_key = run("keys", "create", "--team", "search", "--scope", "usage", "--data-dir", data)
    assert "export" not in usage_key.stderr


def test_a_gateway_is_only_said_to_use_the_file_that_it_reads(tmp_path: Path) -> None:
    def line(config: Path | None) -> str:
        return _next(RunningGateway(7, "http://g", tmp_path, 0.0, config=config), Path("gateway.yaml"))

    assert "kill -USR2 7" in line(tmp_path / "gateway.yaml")
    assert "does not read this file" in line(tmp_path / "other.yaml")
    assert "reads no gateway.yaml" in line(None)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("team: a\nextends: default\ncahe: null\n", "cahe: unknown key; did you mean cache?"),
        ("team: a\nextends: default\ncache: {tll: null}\n", "tll: unknown key; did you mean ttl?"),
        ("team: a\ncache: null\n", "not null"),
        ("team: a\nmodels: {auto: {quality: 95}}\n", "did you mean 95%?"),
        ("teams: {1: {}}\n", "the name 1 must be text; put it in quotes"),
    ],
)
def test_a_mistake_in_a_policy_names_its_remedy(text: str, complaint: str) -> None:
    Path("policies").mkdir()
    Path("policies/a.yaml").write_text(text)
    done = run("check")
    assert done.exit_code == 2, done.output
    assert complaint in done.output
    assert "policies/a.yaml:" in done.output


def test_null_still_removes_what_a_base_has() -> None:
    Path("policies").mkdir()
    Path("policies/a.yaml").write_text(
        "bases: {b: {cache: {ttl: 1h}, models: {x: auto}, budget: {limit_usd: 3}}}\n"
        "teams: {a: {extends: b, cache: {ttl: null}, models: {x: null, y: null}, budget: null, timezone: null}}\n"
    )
    done = run("check")
    assert done.exit_code == 0, done.output


def test_a_mistake_in_gateway_yaml_hides_no_mistake_of_a_policy() -> None:
    Path("gateway.yaml").write_text("listn: 3\nreceivers: {ops: {slack: env:OPS_SLACK}}\n")
    Path("policies").mkdir()
    Path("policies/a.yaml").write_text("team: a\ncahe: {}\n")
    Path("policies/b.yaml").write_text(
        "team: b\nmodels: {auto: {candidates: [mine]}}\nbudget: {limit_usd: 3, notify: [{receiver: ops}]}\n"
    )
    done = run("check")
    assert done.exit_code == 2
    assert "gateway.yaml:1: listn: unknown key" in done.output
    assert "policies/a.yaml:2: cahe: unknown key" in done.output
    assert "b.yaml" not in done.output


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux")
def test_doctor_names_a_file_system_that_takes_no_files() -> None:
    done = run("doctor", "--data-dir", "/proc/x")
    assert "the data directory /proc/x cannot be written" in done.output
    assert "free some space" not in done.output


def test_a_test_request_that_the_cache_answers_is_attributed_to_it() -> None:
    at = Connection("http://127.0.0.1:8080", "tg-key", "auto")
    checked = {"status": 200, "backend": None, "cost-usd": "0"}
    assert _tried(at, checked) == "Tried: the cache answered (0 USD)."
