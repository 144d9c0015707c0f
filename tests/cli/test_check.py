"""What `thriftgate check` accepts and what it complains of, as start-up and routing do."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli

CONFIG = """\
backends:
  - {name: little, kind: local, model: qwen, strength: small}
  - {name: big, kind: local, model: llama, strength: large}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "policies").mkdir()
    return tmp_path


def check(folder: Path, models: str) -> Result:
    (folder / "policies" / "search.yaml").write_text(f"team: search\nmodels: {{{models}}}\n")
    words = ["check", "--config", str(folder / "gateway.yaml"), "--policies", str(folder / "policies"), "--json"]
    return CliRunner().invoke(cli, words, catch_exceptions=False)


@pytest.mark.parametrize(
    "models",
    [
        "auto: {candidates: [little, large], reference: big}",
        "gpt-4o: auto",
        "gpt-4o: big",
        "gpt-4o: llama",
        "gpt-4o: large",
        "gpt-4o: cheap, cheap: [small]",
    ],
)
def test_names_that_routing_understands_are_well(folder: Path, models: str) -> None:
    result = check(folder, models)
    assert result.exit_code == 0, result.output
    assert orjson.loads(result.stdout)["teams"] == ["default", "search"]


@pytest.mark.parametrize(
    ("models", "name"),
    [
        ("auto: {candidates: [litle]}", "litle"),
        ("auto: {reference: huge}", "huge"),
        ("auto: [llama]", "llama"),
        ("gpt-4o: claude", "claude"),
    ],
)
def test_a_name_that_nothing_answers_to_is_told_with_those_that_exist(folder: Path, models: str, name: str) -> None:
    result = check(folder, models)
    assert result.exit_code == 2
    (problem,) = orjson.loads(result.stdout)["problems"]
    assert "search.yaml:2: models." in problem
    assert f"there is no backend or tier called {name!r}; " in problem
    assert ("did you mean little? there are" in problem) == (name == "litle")


def test_a_mistake_in_a_policy_is_told_with_file_line_and_key(folder: Path) -> None:
    result = check(folder, "auto: {qualty: 0.9}")
    assert result.exit_code == 2
    problem = orjson.loads(result.stdout)["problems"][0]
    assert problem.endswith("search.yaml:2: models.auto.qualty: unknown key; did you mean quality?")


@pytest.mark.parametrize("judge", ["agreement", "exact", "big"])
def test_judges_and_backends_may_compare(folder: Path, judge: str) -> None:
    assert check(folder, f"}}\ntrials: {{judge: {judge}").exit_code == 0


def test_a_judge_that_nobody_is_is_told(folder: Path) -> None:
    result = check(folder, "}\ntrials: {judge: nobody")
    assert result.exit_code == 2
    (problem,) = orjson.loads(result.stdout)["problems"]
    assert problem.endswith("there is no judge or backend called 'nobody'; there are agreement, big, exact, little")


def test_a_plan_that_is_missing_is_told_with_the_file_that_names_it(folder: Path) -> None:
    with (folder / "gateway.yaml").open("a") as config:
        config.write("routing: {artefact: gone.json}\n")
    (problem,) = orjson.loads(check(folder, "").stdout)["problems"]
    assert problem.startswith(f"{folder / 'gateway.yaml'}:4: routing.artefact: gone.json: No such file")


def test_only_who_calls_backends_needs_their_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIG_KEY", raising=False)
    with (folder / "gateway.yaml").open("a") as config:
        config.write(
            '  - {name: far, kind: openai, model: m, base_url: "https://far.example/v1", api_key: env:BIG_KEY}\n'
        )
    assert "BIG_KEY is not set" in check(folder, "").output
    words = ["keys", "create", "--team", "t", "--config", str(folder / "gateway.yaml"), "--data-dir", str(folder / "d")]
    assert CliRunner().invoke(cli, words).exit_code == 0


def test_an_old_name_is_told_with_file_line_and_new_name(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(CONFIG.replace("model: qwen,", "model: qwen, queue: 4,"))
    result = check(folder, "auto: {reference: big}")
    assert result.exit_code == 0
    assert orjson.loads(result.stdout)["notes"] == [
        f"{folder / 'gateway.yaml'}:2: backends.0.queue: is now called max_pending_requests; "
        "the old name is accepted until version 1.0",
        f"{folder / 'policies' / 'search.yaml'}:2: models.auto.reference: is now called baseline; "
        "the old name is accepted until version 1.0",
    ]


@pytest.mark.parametrize("section", ["trials", "learning"])
def test_a_complaint_of_a_judge_calls_the_section_as_the_file_does(folder: Path, section: str) -> None:
    (problem,) = orjson.loads(check(folder, f"}}\n{section}: {{judge: nobody").stdout)["problems"]
    assert problem.startswith(f"{folder}/policies/search.yaml:3: {section}.judge: ")


@pytest.mark.parametrize("key", ["artefact", "plan_file"])
def test_a_complaint_of_a_plan_calls_the_key_as_the_file_does(folder: Path, key: str) -> None:
    with (folder / "gateway.yaml").open("a") as config:
        config.write(f"routing: {{{key}: gone.json}}\n")
    (problem,) = orjson.loads(check(folder, "").stdout)["problems"]
    assert problem.startswith(f"{folder / 'gateway.yaml'}:4: routing.{key}: gone.json: ")


@pytest.mark.parametrize("option", ["--schema", "--gateway-schema"])
def test_the_schemas_know_old_names_as_deprecated(option: str) -> None:
    schema = orjson.loads(CliRunner().invoke(cli, ["check", option]).stdout)
    assert schema["properties"]["trials"]["deprecated"]
    assert "deprecated" not in schema["properties"]["learning"]


def test_a_strength_without_effect_is_told(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(
        "backends:\n  - {name: named, kind: openai, model: m, strength: small, base_url: 'http://vllm:8000/v1'}\n"
        "  - {name: mine, kind: openai, model: m, strength: small, base_url: 'http://10.0.0.5/v1'}\n"
        "  - {name: theirs, kind: openai, model: m, strength: large, base_url: 'https://api.openai.com/v1'}\n"
    )
    assert orjson.loads(check(folder, "").stdout)["notes"] == [
        f"{folder / 'gateway.yaml'}:2: backends.named: policies select it by hosted, whatever its strength, since its "
        "address is public, or a name that may lead anywhere; location: local says that the machine is your own."
    ]


@pytest.mark.parametrize(
    ("models", "note"),
    [
        (
            "gpt-4o-mini: dear",
            "dear costs 20.0 times as much as the model that the client names; the alias is followed",
        ),
        (
            "gpt-4o-mini: [dear, middle]",
            "middle costs 3.3 times as much as the model that the client names, and nothing",
        ),
        ("middle: {candidates: [middle, dear], reference: dear}", "its reference dear costs more than the model"),
        ("gpt-4o-mini: [cheap, dear]", ""),
        ("gpt-5: [cheap, middle]", ""),
        ("gpt-5: auto", ""),
        ("mine: dear", ""),
        ("gpt-4o-mini: unpriced", ""),
        ("claude-*: dear", ""),
    ],
)
def test_names_that_lead_to_dearer_backends_are_told(folder: Path, models: str, note: str) -> None:
    """gpt-4o-mini costs 0.15 and 0.6 USD, gpt-5 1.25 and 10."""
    where = "kind: openai, base_url: 'http://10.0.0.5/v1', strength: large"
    (folder / "gateway.yaml").write_text(
        "backends:\n"
        f"  - {{name: cheap, model: a, {where}, price: {{input: 0.1, output: 0.4}}}}\n"
        f"  - {{name: middle, model: b, {where}, price: {{input: 0.5, output: 2}}}}\n"
        f"  - {{name: dear, model: c, {where}, price: {{input: 3, output: 12}}}}\n"
        f"  - {{name: unpriced, model: d, {where}}}\n"
    )
    notes = [each for each in orjson.loads(check(folder, models).stdout)["notes"] if "old name" not in each]
    assert [each.startswith(f"team search: models.{models.split(':')[0]}: {note}") for each in notes] == [True] * bool(
        note
    )


def test_all_faults_of_all_files_are_told_in_one_run(folder: Path) -> None:
    with (folder / "gateway.yaml").open("a") as config:
        config.write(
            "  - {name: far, kind: openai, model: m, api_key: env:NO_KEY, base_url: 'https://far.example/v1'}\n"
        )
        config.write("routing: {plan_file: gone.json}\n")
    (folder / "policies" / "other.yaml").write_text("team: other\nbudgte: {}\n")
    problems = orjson.loads(check(folder, "auto: {baseline: huge}, mini: [tiny]").stdout)["problems"]
    assert [each.removeprefix(f"{folder}/").split(": ")[:2] for each in problems] == [
        ["gateway.yaml:4", "backends.2.api_key"],
        ["policies/other.yaml:2", "budgte"],
        ["policies/search.yaml:2", "models.auto.baseline"],
        ["policies/search.yaml:2", "models.mini.candidates.0"],
        ["gateway.yaml:5", "routing.plan_file"],
    ]
    (folder / "gateway.yaml").write_text("listen: {port: 99999}\nnonsense: 1\n")
    problems = orjson.loads(check(folder, "auto: {qualty: 1}").stdout)["problems"]
    assert len(problems) == 4
    assert "gateway.yaml:1: listen.port: must be at most 65535, not 99999" in problems[0]


def test_what_deserves_a_look_is_noted(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(CONFIG + "requests: {deadline: 600}\n")
    (folder / "policies" / "other.yaml").write_text(
        "team: other\ncache: {ttl: 24}\nbudget: {limit_usd: 5, notify: [{slack: env:NOT_SET_ANYWHERE}]}\n"
    )
    result = check(folder, "")
    assert result.exit_code == 0
    assert [each.removeprefix(f"{folder}/") for each in orjson.loads(result.stdout)["notes"]] == [
        "policies/other.yaml:3: budget.notify.0: env:NOT_SET_ANYWHERE is not set here; export it for the gateway",
        "policies/other.yaml:2: cache.ttl: 24 means 24 seconds; write 24s, or 24h for hours",
        "gateway.yaml:4: requests.deadline: 600 means 600 seconds; write 600s, or 600h for hours",
    ]


def test_a_gateway_yml_is_not_overlooked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "gateway.yaml").rename(folder / "gateway.yml")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))  # a gateway of another test may run
    result = CliRunner().invoke(cli, ["check", "--json"], catch_exceptions=False)
    assert result.exit_code == 2
    (problem,) = orjson.loads(result.stdout)["problems"]
    assert problem.startswith("gateway.yml:1: is not read; rename it to gateway.yaml")


def test_names_are_compared_with_this_machine_where_no_file_lists_backends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    (folder / "gateway.yaml").write_text("listen: {port: 1}\n")
    result = check(folder, "auto: [gpt-4o-mni]")
    assert result.exit_code == 0
    (note,) = orjson.loads(result.stdout)["notes"]
    assert "search.yaml:2: models.auto" in note
    assert "there is no backend or tier called 'gpt-4o-mni'; did you mean gpt-4o-mini?" in note


def test_doctor_finds_what_check_finds_and_a_directory_that_cannot_be_written(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text("team: search\ncache: {ttl: 24}\nnonsense: 1\n")
    (folder / "data").write_text("a file")
    words = ["--config", str(folder / "gateway.yaml"), "--policies", str(folder / "policies")]
    result = CliRunner().invoke(cli, ["doctor", *words, "--data-dir", str(folder / "data"), "--json"])
    assert result.exit_code == 1
    findings = orjson.loads(result.stdout)
    wrong = [each["what"] for each in findings if not each["well"]]
    assert wrong[0].startswith(f"{folder}/policies/search.yaml:3: nonsense: unknown key")
    assert f"the data directory {folder}/data cannot be written" in wrong
    assert next(each["what"] for each in findings if each["note"]).endswith("write 24s, or 24h for hours")


def test_check_and_doctor_report_the_same_faults_of_files_in_the_same_words(folder: Path) -> None:
    (folder / "policies" / "a.yaml").write_text("team: a\nnonsense: 1\n")
    budget = "budget: {limit_usd: 5, notify: [{slack: env:NOT_SET_ANYWHERE}]}\n"
    (folder / "policies" / "b.yaml").write_text(f"team: b\n{budget}")
    words = ["--config", str(folder / "gateway.yaml"), "--policies", str(folder / "policies")]
    marked = [
        {line for line in CliRunner().invoke(cli, [*command, *words]).output.splitlines() if ".yaml:" in line}
        for command in (["check"], ["doctor", "--data-dir", str(folder / "data")])
    ]
    assert marked[0] == marked[1]
    assert {line[0] for line in marked[0]} == {"✗", "!"}


def test_doctor_reports_a_mistake_once_beside_a_running_gateway(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of a provider's key is often exported only where the gateway was started."""
    monkeypatch.chdir(folder)
    text = (
        'backends: [{name: big, kind: openai, base_url: "http://127.0.0.1:9/v1", model: m, api_key: env:NOT_SET_HERE}]'
    )
    (folder / "data").mkdir()
    for name in ("gateway.yaml", "data/accepted.yaml"):
        (folder / name).write_text(text)
    facts = {"pid": os.getpid(), "url": "http://127.0.0.1:9", "workers": [], "started_at": 0.0}
    (folder / "data" / "runtime.json").write_bytes(orjson.dumps(facts))
    result = CliRunner().invoke(cli, ["doctor", "--data-dir", str(folder / "data")])
    assert result.exit_code == 1
    assert result.output.count("NOT_SET_HERE is not set") == 1
    assert "only the files were checked" in result.output
    assert "export the variables of the running gateway in this shell, too" in result.output


def test_check_names_the_files_that_it_has_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--config", str(folder / "gateway.yaml"), "--policies", str(folder / "policies")]
    text = CliRunner().invoke(cli, ["check", *words]).output
    assert f"no mistakes in {folder}/gateway.yaml and {folder}/policies: policies for default" in text
    empty = folder / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))  # a gateway of another test may run
    text = CliRunner().invoke(cli, ["check", "--data-dir", str(folder / "data")]).output
    assert "the built-in defaults (no gateway.yaml and no policies here)" in text


def test_a_port_that_is_none_is_refused(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["serve", "--port", "99999", "--config", str(folder / "gateway.yaml")])
    assert result.exit_code == 2
    assert "99999 is not in the range 0<=x<=65535" in result.output


def test_a_mistake_in_a_policy_hides_no_other_fault(folder: Path) -> None:
    policies = folder / "policies"
    (policies / "bases.yaml").write_text(
        "bases: {strict: {cahe: off, alerts: {notify: [{slack: env:NOT_SET_BASE}]}}}\n"
    )
    (policies / "child.yaml").write_text("team: child\nextends: strict\nmodels: {auto: [tiny]}\n")
    (policies / "other.yaml").write_text(
        "team: other\n"
        "nonsense: 1\n"
        "budget: {limit_usd: -1, notify: [{slack: env:NOT_SET_BUDGET}]}\n"
        "allowed_models: [little, nobody]\n"
    )
    found = orjson.loads(check(folder, "auto: {qualty: 1, candidates: [huge]}").stdout)
    faults = [each.removeprefix(f"{policies}/").split("; ")[0] for each in (*found["problems"], *found["notes"])]
    assert sorted(faults) == [
        "bases.yaml:1: bases.strict.alerts.notify.0: env:NOT_SET_BASE is not set here",
        "bases.yaml:1: bases.strict.cahe: unknown key",
        "child.yaml:3: models.auto.candidates.0: there is no backend or tier called 'tiny'",
        "other.yaml:2: nonsense: unknown key",
        "other.yaml:3: budget.limit_usd: must be an amount in USD that is not negative, not -1",
        "other.yaml:3: budget.notify.0: env:NOT_SET_BUDGET is not set here",
        "other.yaml:4: allowed_models.1: there is no backend, model or tier called 'nobody'",
        "search.yaml:2: models.auto.candidates.0: there is no backend or tier called 'huge'",
        "search.yaml:2: models.auto.qualty: unknown key",
    ]
