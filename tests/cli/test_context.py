"""`thriftgate context explain` and `trim` with requests of both dialects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.domain.request import CompletionRequest
from tests.context.cuts.conversations import Talk
from tests.old_turns.sessions import asked


def run(*given: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["context", *given, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = orjson.loads(done.stdout)
    return found


def written(tmp_path: Path, request: CompletionRequest) -> str:
    file = tmp_path / "request.json"
    file.write_bytes(request.raw)
    return str(file)


def talk() -> Talk:
    found = Talk()
    found.steps(60)
    found.says("And the others?")
    return found


@pytest.mark.parametrize(("chat", "model"), [(False, "claude-opus-4-6"), (True, "gpt-5.6")])
def test_explain_shows_what_is_left_out_and_why(tmp_path: Path, chat: bool, model: str) -> None:
    found = talk()
    values = run("explain", written(tmp_path, found.chat() if chat else found.request()), "--model", model)
    assert values["left_out"]
    assert values["tokens_after"] < values["tokens_before"]
    assert "outputs with" in values["why"]
    assert (values["marks"] is None) is chat


def test_explain_shows_why_nothing_is_left_out(tmp_path: Path) -> None:
    short = Talk()
    short.steps(3)
    values = run("explain", written(tmp_path, short.request()))
    assert (values["left_out"], values["why"][:24]) == ([], "The session is too short")


def test_explain_shows_which_tools_were_not_used(tmp_path: Path) -> None:
    tools = [{"name": name, "description": "Moves it.", "input_schema": {}} for name in ("zog", "vek", "lum")]
    found = Talk()
    found.step("lum")
    request = written(tmp_path, found.request(tools=tools))
    assert set(run("explain", request)["unused_tools"]) == {"vek"}
    shown = CliRunner().invoke(cli, ["context", "explain", request]).output
    assert "Tools that were not used" in shown


def test_explain_shows_what_notes_could_replace(tmp_path: Path) -> None:
    values = run("explain", written(tmp_path, asked()), "--model", "claude-opus-4-6")["old_turns"]
    assert len(values["messages"]) == 30
    assert "30 old outputs and answers" in values["why"]
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000}
    values = run("explain", written(tmp_path, asked(**thinking)), "--model", "claude-opus-4-6")["old_turns"]
    assert (values["messages"], values["why"][:8]) == ([], "No notes")


def test_trim_takes_anthropics_messages_too(tmp_path: Path) -> None:
    values = run("trim", written(tmp_path, talk().request()), "--max-tokens", "20000")
    assert values["dropped"]
    assert values["tokens_after"] <= 20_000
