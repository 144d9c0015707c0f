"""What the README says is done: its commands run, its snippets get answers from the real gateway, its routes exist."""

from __future__ import annotations

import argparse
import ast
import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from http.client import HTTPConnection
from pathlib import Path

import orjson
import pytest
from click import Context
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.dialects.clients import PATHS
from tests.docs.markdown import README, commands, fences, first_column
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider

pytestmark = pytest.mark.heavy

BASE = "http://127.0.0.1:8080"
LINES = [line for line in commands(README) if "thriftgate " in line]
STARTS = ("thriftgate serve", "thriftgate model fetch", "thriftgate loadtest", "thriftgate chaos")
"""Serve until they are stopped, download, or load the machine for long: read, not run. (The gateway of these tests is
started by the first; tests/loadtests runs the others, in small.)"""
FILES = {
    "pairs.jsonl": [
        {"id": 1, "stored": "How do I reset my password?", "asked": "Please, how do I reset my password?"},
        {"id": 2, "stored": "How do I turn on the alarm?", "asked": "How do I turn off the alarm?"},
    ],
    "questions.jsonl": [
        {"id": 1, "asked": "How do I reset my password?"},
        {"id": 2, "asked": "how do i reset my password"},
    ],
    "outcomes.jsonl": [
        {"prompt": f"Question {number}: what is {number} plus {number}?", "w": number % 2, "s": 1}
        for number in range(40)
    ],
    "request.json": [{"model": "auto", "messages": [{"role": "user", "content": "How many days are in a week?"}]}],
}


@pytest.fixture
def here(gateway: GatewayProcess, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a reader of the README stands in, next to gateway.yaml and policies."""
    for name, rows in FILES.items():
        (gateway.home / name).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("THRIFTGATE_DATA_DIR", str(gateway.home / "data"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(gateway.home)
    return gateway.home


@pytest.mark.parametrize("line", LINES)
def test_every_command_works(line: str, here: Path, gateway: GatewayProcess) -> None:
    if "KEY_ID" in line:
        line = line.replace("KEY_ID", gateway.json("keys", "create", "--team", "search")["id"])
    if line.startswith(STARTS):
        read(shlex.split(line)[1:])
    elif re.search(r"[|>]", line):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, timeout=15, check=False)
        assert done.returncode == 0, done.stderr.decode()
    else:
        result = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.output


def read(words: list[str]) -> None:
    """Raises UsageError for words that the command does not understand."""
    command, context = cli, Context(cli)
    while words and hasattr(command, "get_command"):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    command.make_context(command.name, words)


def test_what_the_cache_verbs_print_is_what_the_text_promises(here: Path) -> None:
    result = CliRunner().invoke(cli, ["cache", "evaluate", "pairs.jsonl"], catch_exceptions=False)
    rows = [orjson.loads(line) for line in result.stdout.splitlines()]
    assert [(row["id"], row["hit"]) for row in rows] == [(1, True), (2, False)]


async def test_the_curl_line_gets_an_answer(gateway: GatewayProcess, small: Provider) -> None:
    (line,) = [line for line in commands(README) if line.startswith("curl ")]
    key = await gateway.key("search")
    status, text = await asyncio.to_thread(curl, line.replace(BASE, gateway.base), key)
    assert status == 200
    assert small.last.text_sent in text


def curl(line: str, key: str) -> tuple[int, str]:
    """Status and what was printed; where there is no curl, its words are sent all the same."""
    if shutil.which("curl"):
        command = ["bash", "-c", line.replace("curl ", "curl --silent --show-error ", 1)]
        environment = {**os.environ, "THRIFTGATE_KEY": key}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=15, check=True)
        return int(done.stdout.split()[1]), done.stdout
    words = argparse.ArgumentParser()
    words.add_argument("url")
    words.add_argument("-i", action="store_true")
    words.add_argument("-H", action="append")
    words.add_argument("-d")
    said = words.parse_args(shlex.split(line.replace("$THRIFTGATE_KEY", key))[1:])
    host, _, path = said.url.removeprefix("http://").partition("/")
    connection = HTTPConnection(host, timeout=15)
    connection.request("POST", f"/{path}", said.d, dict(header.split(": ", 1) for header in said.H))
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def snippet(word: str) -> str:
    """The only one with `word`."""
    (found,) = [fence.text for fence in fences(README, "python") if word in fence.text]
    return found


async def printed(gateway: GatewayProcess, program: str) -> str:
    """What `program` prints when it asks this gateway."""
    assert BASE in program
    environment = {**os.environ, "THRIFTGATE_KEY": await gateway.key("search")}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program.replace(BASE, gateway.base)],
        capture_output=True, text=True, env=environment, timeout=18, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_openai_snippet_gets_answers(gateway: GatewayProcess, small: Provider) -> None:
    plain, told, streamed = (await printed(gateway, snippet("from openai"))).split("\n", 2)
    assert plain == streamed != ""
    assert told.split()[0] in ("miss", "exact")  # another test may have asked the same


async def test_what_the_same_client_asks_beside_chat_is_answered(
    gateway: GatewayProcess, small: Provider, embedder: Provider
) -> None:
    opening, _, _ = snippet("from openai").partition("question =")
    said, vectors = (await printed(gateway, opening + snippet("client.responses"))).splitlines()
    assert said == small.last.text_sent
    assert vectors.startswith("2 vectors of ")
    assert embedder.last.path == "/v1/embeddings"


async def test_the_anthropic_snippet_gets_answers(gateway: GatewayProcess, small: Provider) -> None:
    plain, streamed = (await printed(gateway, snippet("from anthropic"))).split("\n", 1)
    assert plain == streamed != ""


def test_the_agents_are_sent_to_paths_that_exist() -> None:
    (fence,) = fences(README, "toml")
    told = tomllib.loads(fence.text)
    provider = told["model_providers"][told["model_provider"]]
    assert provider["base_url"] == f"{BASE}/v1"
    assert f"/v1/{provider['wire_api']}" in PATHS
    assert any(f"ANTHROPIC_BASE_URL={BASE} " in line for line in commands(README))


def test_the_langchain_snippet_names_address_key_and_model() -> None:
    """LangChain is no dependency, so it is only read."""
    calls = [node for node in ast.walk(ast.parse(snippet("langchain"))) if isinstance(node, ast.Call)]
    (made,) = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "ChatOpenAI"]
    given = {word.arg: word.value for word in made.keywords}
    assert given.keys() == {"base_url", "api_key", "model"}
    assert ast.literal_eval(given["base_url"]) == f"{BASE}/v1"


@pytest.mark.parametrize("route", first_column("routes"))
def test_every_route_exists(route: str, gateway: GatewayProcess) -> None:
    method, path = route.split()
    connection = HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    connection.request(method, path.replace("{id}", "req_0"))
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status in (200, 401), text
