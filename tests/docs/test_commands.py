"""Every command in the documents is executed: `thriftgate …` beside a running gateway, `curl …` against it."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import orjson
import pytest
from click import Context
from click.testing import CliRunner

from gateway.cli.main import cli
from tests.docs.markdown import REFERENCE, commands, executed, first_column
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider

pytestmark = pytest.mark.heavy

BASE = "http://127.0.0.1:8080"
PLACES = executed(commands)
LINES = [pytest.param(line, id=f"{page}: {line}") for line, page in PLACES.items() if "thriftgate " in line]
CURLS = [pytest.param(line, id=f"{page}: {line}") for line, page in PLACES.items() if line.startswith("curl ")]
PROGRAMS = ("claude", "qwen", "aider")
STARTS = tuple(f"thriftgate {verb}" for verb in ("serve", "model fetch", "up", "loadtest", "dev chaos", "dev attack"))
"""Serve until they are stopped, download, or load the machine for long: parsed, not executed. (The gateway of these
tests is started by the first; tests/loadtests and tests/attacks run the others.)"""
REACHES = ("thriftgate doctor", "thriftgate backends test")
"""These call the backends, which do not run here, and say so."""
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
    "spend-logs.json": [{"spend": 0.1, "startTime": "2026-11-01T10:00:00Z", "model": "gpt-4o", "messages": "{}"}],
    "observations.jsonl": [
        {"traceId": "t", "startTime": "2026-11-01T10:00:00Z", "model": "gpt-4o", "input": "Hello"},
    ],
    "session.jsonl": [{"type": "summary", "summary": "A session", "leafUuid": "x"}],
    "request.json": [{"model": "auto", "messages": [{"role": "user", "content": "How many days are in a week?"}]}],
}


@pytest.fixture
def here(gateway: GatewayProcess, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a reader of the documents is in, next to gateway.yaml and policies."""
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
        parse(shlex.split(line)[1:])
    elif re.search(r"[|>]", line):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, timeout=15, check=False)
        assert done.returncode == 0, done.stderr.decode()
    else:
        result = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False)
        assert result.exit_code == line.startswith(REACHES), result.output
        assert not line.startswith(REACHES) or "cannot be reached" in result.output


def test_every_other_command_sets_a_variable_or_starts_a_client() -> None:
    rest = [line for line in PLACES if "thriftgate " not in line and not line.startswith("curl ")]
    assert not [line for line in rest if not line.startswith(("export ", *PROGRAMS))]


def parse(words: list[str]) -> None:
    """Raises UsageError for words that the command does not understand."""
    command, context = cli, Context(cli)
    while words and hasattr(command, "get_command"):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    command.make_context(command.name, words)


def test_the_cache_commands_print_what_the_text_promises(here: Path) -> None:
    result = CliRunner().invoke(cli, ["cache", "evaluate", "pairs.jsonl"], catch_exceptions=False)
    rows = [orjson.loads(line) for line in result.stdout.splitlines()]
    assert [(row["id"], row["hit"]) for row in rows] == [(1, True), (2, False)]


@pytest.mark.parametrize("line", CURLS)
async def test_every_curl_line_gets_an_answer(line: str, gateway: GatewayProcess, small: Provider) -> None:
    assert BASE in line
    key = await gateway.key("search")
    if "$REQUEST_ID" in line:
        line = line.replace("$REQUEST_ID", await answered_request(gateway, key))
    status, text = await asyncio.to_thread(curl, line.replace(BASE, gateway.base), key)
    assert status in (200, 201), text
    if "/chat/completions" in line:
        assert "You said" in text or small.last.text_sent in text


async def answered_request(gateway: GatewayProcess, key: str) -> str:
    """The id of a request that was just answered."""

    def ask() -> str:
        connection = HTTPConnection("127.0.0.1", gateway.port, timeout=15)
        body = orjson.dumps({"model": "auto", "messages": [{"role": "user", "content": "Which day follows Monday?"}]})
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        response.read()
        connection.close()
        return str(response.headers["x-request-id"])

    return await asyncio.to_thread(ask)


def curl(line: str, key: str) -> tuple[int, str]:
    """Status and what was printed; where there is no curl, its words are sent all the same."""
    if shutil.which("curl"):
        command = ["bash", "-c", line.replace("curl ", "curl --silent --show-error --write-out '\n%{http_code}' ", 1)]
        environment = {**os.environ, "THRIFTGATE_KEY": key}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=15, check=True)
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text
    words = argparse.ArgumentParser()
    words.add_argument("url")
    words.add_argument("-i", action="store_true")
    words.add_argument("-X")
    words.add_argument("-H", action="append")
    words.add_argument("-d")
    said = words.parse_args(shlex.split(line.replace("$THRIFTGATE_KEY", key))[1:])
    host, _, path = said.url.removeprefix("http://").partition("/")
    connection = HTTPConnection(host, timeout=15)
    method = said.X or ("POST" if said.d else "GET")
    connection.request(method, f"/{path}", said.d, dict(header.split(": ", 1) for header in said.H))
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


@pytest.mark.parametrize("route", first_column("routes", REFERENCE / "http.md"))
def test_every_route_exists(route: str, gateway: GatewayProcess) -> None:
    method, path = route.split()
    connection = HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    connection.request(method, path.replace("{id}", "req_0"))
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status in (200, 401), text
