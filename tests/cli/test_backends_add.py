"""`backends add`: a recipe for every kind, one free request, and a file whose comments stay."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.cli.operation.recipes import RECIPES
from gateway.domain.kinds import KINDS
from gateway.settings.environment import PROVIDER_KEYS
from gateway.settings.gateway import load_settings
from tests.fakes.model_server import ModelServer

FILE = """\
# ours
backends:
  - {name: old, kind: simulated, model: m}   # keep me

# the address
listen: {port: 0}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a gateway of another test may run
    monkeypatch.setenv("THRIFTGATE_DATA_DIR", str(tmp_path / "data"))
    for name in PROVIDER_KEYS.values():
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A model server that lists the model `qwen-7b`, on a loop of its own."""
    loop = asyncio.new_event_loop()
    server = ModelServer()
    server.pages["/v1/models"] = 200, '{"data": [{"id": "qwen-7b"}]}'
    loop.run_until_complete(server.listen())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield server
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(server.refuse())
    loop.close()


def add(*words: str) -> Result:
    return CliRunner().invoke(cli, ["backends", "add", *words])


def test_every_kind_has_a_recipe_that_makes_a_valid_file() -> None:
    assert {recipe.kind or name for name, recipe in RECIPES.items()} == set(KINDS)
    for name, recipe in RECIPES.items():
        given = [word for key, value in recipe.needs.items() for word in ("--set", f"{key}={value}")]
        done = add(name, "--model", recipe.model, "--name", name, *given, "--untested")
        assert done.exit_code == 0, done.output
    found = load_settings(Path("gateway.yaml"), keys=False).config.backends or ()
    assert [each.name for each in found] == list(RECIPES)
    assert all(each.strength for each in found if not each.hosted)


def test_a_backend_that_answers_is_added_and_comments_stay(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gateway.yaml").write_text(FILE)
    Path("gateway.yaml").chmod(0o640)
    monkeypatch.setenv("QWEN_KEY", "sk-secret")
    done = add("vllm", "--model", "qwen-7b", "--base-url", server.url, "--key", "env:QWEN_KEY", "--json")
    assert done.exit_code == 0, done.output
    assert server.asked == [("/v1/models", "Bearer sk-secret")]
    assert orjson.loads(done.stdout)["reached"]["trouble"] == ""
    text = Path("gateway.yaml").read_text()
    for line in FILE.splitlines():
        assert line in text
    assert "sk-secret" not in text + done.output
    written = yaml.safe_load(text)["backends"]
    assert [each["name"] for each in written] == ["old", "qwen-7b"]
    assert written[1]["strength"] == "small"
    assert written[1]["api_key"] == "env:QWEN_KEY"
    assert Path("gateway.yaml").stat().st_mode & 0o777 == 0o640
    assert list(Path().glob(".gateway*")) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("vllm", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"), "cannot be reached"),
        (("openai", "--model", "m"), "OPENAI_API_KEY is not set"),
        (("azure", "--model", "m"), "--base-url https://NAME.openai.azure.com"),
        (("vertex", "--model", "m"), "--set project=my-project"),
        (("openai",), "--model gpt-5-mini"),
        (("opnai",), "did you mean openai?"),
        (("openai", "--model", "m", "--key", "sk-secret"), "env:NAME or file:PATH"),
        (("openai", "--model", "m", "--set", "api_key=sk-secret", "--untested"), "env:NAME or file:PATH"),
        (("bedrock", "--model", "m", "--set", "region=x", "--key", "sk-secret", "--untested"), "env:NAME or file:PATH"),
        (("openai", "--model", "m", "--set", "bearer_token=sk-secret", "--untested"), "env:NAME or file:PATH"),
        (("vllm", "--model", "m", "--base-url", "http://me:sk-secret@10.0.0.1/v1", "--untested"), "no user and"),
        (("openai", "--model", "m", "--set", "regoin=x"), "did you mean region?"),
        (("openai", "--model", "m", "--set", "region"), "must be KEY=VALUE"),
        (("openai", "--model", "m", "--set", "slots=-1", "--untested"), "slots: "),
        (("simulated", "--model", "m", "--name", "old"), "There is a backend 'old' already"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_written(words: tuple[str, ...], complaint: str) -> None:
    Path("gateway.yaml").write_text(FILE)
    done = add(*words)
    assert done.exit_code != 0
    assert complaint in done.output
    assert "sk-secret" not in done.output
    assert Path("gateway.yaml").read_text() == FILE


def test_backends_that_the_gateway_finds_by_itself_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    Path("gateway.yaml").write_text("listen: {port: 0}  # ours\n")
    done = add("simulated", "--model", "big")
    assert done.exit_code == 0, done.output
    names = [each["name"] for each in yaml.safe_load(Path("gateway.yaml").read_text())["backends"]]
    assert {"gpt-4o", "gpt-4o-mini", "big"} <= set(names)
    assert "gpt-4o" in done.output


def test_a_file_that_is_written_unusually_is_not_changed() -> None:
    Path("gateway.yaml").write_text("backends: null\n")
    done = add("simulated", "--model", "big")
    assert done.exit_code == 1
    assert "- name: big" in done.output
    assert Path("gateway.yaml").read_text() == "backends: null\n"


def test_without_a_recipe_they_are_listed() -> None:
    rows = orjson.loads(add("--json").stdout)
    assert {row["recipe"] for row in rows} == set(RECIPES)
    assert next(row["key"] for row in rows if row["recipe"] == "groq") == "GROQ_API_KEY"
