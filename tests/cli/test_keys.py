"""`thriftgate keys`."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text("team: search\n")
    return tmp_path


def create(folder: Path, team: str) -> Result:
    words = ["keys", "create", "--team", team, "--json", "--data-dir", f"{folder}/data"]
    return CliRunner().invoke(cli, [*words, "--policies", f"{folder}/policies"], catch_exceptions=False)


@pytest.mark.parametrize(("team", "note"), [("search", False), ("saerch", True)])
def test_a_team_without_a_policy_of_its_own_is_noted(folder: Path, team: str, note: bool) -> None:
    made = create(folder, team)
    assert orjson.loads(made.stdout)["team"] == team
    assert (f"team {team} has no policy of its own" in made.stderr) is note


def test_nothing_is_noted_while_the_policies_have_a_mistake(folder: Path) -> None:
    (folder / "policies" / "broken.yaml").write_text("team: [")
    assert "no policy" not in create(folder, "saerch").stderr
