"""A team's kept samples as training data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.ledger.store import samples
from gateway.ledger.store.samples import KeptSample
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database

TOKENS = {"content": [{"token": "8", "logprob": -0.1}]}
SPOKEN = {"role": "assistant", "content": "8"}


def answer(backend: str, message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {"backend": backend, "choices": [{"message": message, **more}], "finish": finish}


def sample(number: int, first: dict[str, Any], kind: str = "en/text/opening") -> KeptSample:
    asked = {"messages": [{"role": "user", "content": f"What is 7 plus {number}?"}]}
    return KeptSample(f"r{number}", kind, asked, [first, answer("small", SPOKEN)], "agreement", 1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text("backends: []\nlocal_model: {enabled: false}\n")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text("team: search\ndata: {store_samples: 30d}\n")
    database = Database(f"sqlite:///{Paths(tmp_path / 'data').sqlite}")
    database.upgrade()
    found = [
        sample(1, answer("large", SPOKEN, logprobs=TOKENS)),
        sample(2, answer("large", {"role": "assistant", "content": None, "refusal": "No."})),
        sample(3, answer("large", SPOKEN, "length")),
        sample(4, answer("large", SPOKEN), kind="es/text/opening"),
    ]
    now = time.time()
    with database.begin() as connection:
        for number, one in enumerate(found):
            samples.keep(connection, "search", one, now + number, now + 1000)
    database.close()
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    places = [("--config", "gateway.yaml"), ("--data-dir", "data"), ("--policies", "policies")]
    return CliRunner().invoke(cli, ["distil", *words, *(x for name, to in places for x in (name, str(folder / to)))])


def test_each_line_is_a_chat_that_ends_with_the_references_answer(folder: Path) -> None:
    result = run(folder, "export", "--team", "search", "--out", str(folder / "chats.jsonl"), "--json")
    assert orjson.loads(result.stdout) == {"written": 2, "left_out": 2}, result.output
    first, second = [orjson.loads(line) for line in (folder / "chats.jsonl").read_bytes().splitlines()]
    assert first == {"messages": [{"role": "user", "content": "What is 7 plus 1?"}, SPOKEN], "logprobs": TOKENS}
    assert "logprobs" not in second


def test_one_class_alone_can_be_exported(folder: Path) -> None:
    words = ("--traffic-class", "es/text/opening", "--json")
    result = run(folder, "export", "--team", "search", "--out", str(folder / "chats.jsonl"), *words)
    assert orjson.loads(result.stdout)["written"] == 1


def test_a_file_that_cannot_be_written_changes_nothing(folder: Path) -> None:
    (folder / "chats.jsonl").write_text("earlier")
    (folder / "chats.jsonl.new").mkdir()
    result = run(folder, "export", "--team", "search", "--out", str(folder / "chats.jsonl"))
    assert (result.exit_code, (folder / "chats.jsonl").read_text()) == (1, "earlier")
    assert "nothing was changed" in result.output


def test_a_team_can_forget_its_samples_at_once(folder: Path) -> None:
    assert orjson.loads(run(folder, "forget", "--team", "search", "--json").stdout) == {"deleted": 4}
    result = run(folder, "export", "--team", "search", "--out", str(folder / "none.jsonl"), "--json")
    assert orjson.loads(result.stdout)["written"] == 0
