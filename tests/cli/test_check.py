"""What `thriftgate check` accepts and what it complains of, as start-up and routing do."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli

CONFIG = """\
backends:
  - {name: little, kind: local, model: qwen, tier: small}
  - {name: big, kind: local, model: llama, tier: large}
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
    assert problem.endswith("search.yaml:2: models.auto.qualty: unknown key; remove it or correct its spelling")
