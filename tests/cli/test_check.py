"""What `thriftgate check` accepts and what it complains of, as start-up and routing do."""

from __future__ import annotations

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
    assert orjson.loads(result.output)["teams"] == ["default", "search"]


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
    (problem,) = orjson.loads(result.output)["problems"]
    assert f"there is no backend or tier called {name!r}; there are big, hosted, large, little, small" in problem


def test_a_mistake_in_a_policy_is_told_with_file_line_and_key(folder: Path) -> None:
    result = check(folder, "auto: {qualty: 0.9}")
    assert result.exit_code == 2
    problem = orjson.loads(result.output)["problems"][0]
    assert problem.endswith("search.yaml:2: models.auto.qualty: unknown key; did you mean quality?")


@pytest.mark.parametrize("judge", ["agreement", "exact", "big"])
def test_judges_and_backends_may_compare(folder: Path, judge: str) -> None:
    assert check(folder, f"}}\ntrials: {{judge: {judge}").exit_code == 0


def test_a_judge_that_nobody_is_is_told(folder: Path) -> None:
    result = check(folder, "}\ntrials: {judge: nobody")
    assert result.exit_code == 2
    (problem,) = orjson.loads(result.output)["problems"]
    assert problem.endswith("there is no judge or backend called 'nobody'; there are agreement, big, exact, little")


def test_a_plan_that_is_missing_is_told_with_the_file_that_names_it(folder: Path) -> None:
    with (folder / "gateway.yaml").open("a") as config:
        config.write("routing: {artefact: gone.json}\n")
    (problem,) = orjson.loads(check(folder, "").output)["problems"]
    assert problem.startswith(f"{folder / 'gateway.yaml'}: routing.artefact: gone.json: No such file")


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
    assert orjson.loads(result.output)["notes"] == [
        f"{folder / 'gateway.yaml'}:2: backends.0.queue: is now called max_pending_requests; "
        "the old name is accepted until version 1.0",
        f"{folder / 'policies' / 'search.yaml'}:2: models.auto.reference: is now called baseline; "
        "the old name is accepted until version 1.0",
    ]


@pytest.mark.parametrize("section", ["trials", "learning"])
def test_a_complaint_of_a_judge_calls_the_section_as_the_file_does(folder: Path, section: str) -> None:
    (problem,) = orjson.loads(check(folder, f"}}\n{section}: {{judge: nobody").output)["problems"]
    assert problem.startswith(f"team search: {section}.judge: ")


@pytest.mark.parametrize("key", ["artefact", "plan_file"])
def test_a_complaint_of_a_plan_calls_the_key_as_the_file_does(folder: Path, key: str) -> None:
    with (folder / "gateway.yaml").open("a") as config:
        config.write(f"routing: {{{key}: gone.json}}\n")
    (problem,) = orjson.loads(check(folder, "").output)["problems"]
    assert problem.startswith(f"{folder / 'gateway.yaml'}: routing.{key}: gone.json: ")


@pytest.mark.parametrize("option", ["--schema", "--gateway-schema"])
def test_the_schemas_know_old_names_as_deprecated(option: str) -> None:
    schema = orjson.loads(CliRunner().invoke(cli, ["check", option]).output)
    assert schema["properties"]["trials"]["deprecated"]
    assert "deprecated" not in schema["properties"]["learning"]


def test_a_strength_without_effect_is_told(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(
        "backends:\n  - {name: named, kind: openai, model: m, strength: small, base_url: 'http://vllm:8000/v1'}\n"
        "  - {name: mine, kind: openai, model: m, strength: small, base_url: 'http://10.0.0.5/v1'}\n"
        "  - {name: theirs, kind: openai, model: m, strength: large, base_url: 'https://api.openai.com/v1'}\n"
    )
    assert orjson.loads(check(folder, "").output)["notes"] == [
        "backends.named: policies select it by hosted, whatever its strength, since its address is public, or a name "
        "that may lead anywhere; location: local says that the machine is your own."
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
    notes = [each for each in orjson.loads(check(folder, models).output)["notes"] if "old name" not in each]
    assert [each.startswith(f"team search: models.{models.split(':')[0]}: {note}") for each in notes] == [True] * bool(
        note
    )
