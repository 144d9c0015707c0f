"""Coding agents run a whole tool loop behind the gateway: a tool is called, a file is written, the result is told."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.clients.catalogue import AGENT_TARGETS, CLOUDS, RESPONSES_MODEL, Target
from tests.clients.stage import Stage
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(150)]

CODEX = """\
model = "{model}"
model_provider = "thriftgate"

[model_providers.thriftgate]
name = "Thriftgate"
base_url = "{base}/v1"
env_key = "THRIFTGATE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = {sockets}
"""


NAMED = [
    *(pytest.param(target, False, id=f"{target}-any-name") for target in (*AGENT_TARGETS, *CLOUDS)),
    *(pytest.param(target, True, id=f"{target}-known-name") for target in AGENT_TARGETS),
]
"""Whom an agent asks, and whether by a name that the agent knows."""


def run(work: Path, environment: dict[str, str], *command: str) -> list[dict[str, Any]]:
    """The JSON lines that the agent prints."""
    done = subprocess.run(
        command, env=environment, cwd=work, capture_output=True, timeout=140, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, (done.stdout[-3000:] + done.stderr[-3000:]).decode()
    return [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]


@pytest.fixture
def work(home: Path) -> Path:
    work = home / "work"
    work.mkdir()
    return work


def check_sessions(stage: Stage, target: Target, agent: str) -> None:
    """The ledger tells the agent, and its own id of the session: it is no digest of its first turns."""

    def named() -> bool:
        rows = stage.gateway.json("usage", "--team", target.team, "--by", "agent,session")["rows"]
        sessions = [row["session"] for row in rows if row["agent"] == agent]
        return bool(sessions) and not any(not one or one.startswith("turns-") for one in sessions)

    wait_until(named)


def claude_environment(stage: Stage, target: Target, home: Path, model: str) -> dict[str, str]:
    return {
        **stage.environment(target, home),
        "ANTHROPIC_BASE_URL": stage.gateway.base,
        "ANTHROPIC_AUTH_TOKEN": stage.keys[target.team],
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


@pytest.mark.parametrize(("target", "known"), NAMED)
def test_claude_code_writes_a_file(stage: Stage, home: Path, work: Path, target: Target, known: bool) -> None:
    said, file = f"tok-{secrets.token_hex(5)}", work / "hello.txt"
    environment = claude_environment(stage, target, home, target.claude_model if known else target.model)
    told = run(
        work, environment,
        "claude", "-p", f"Write {said} [[write {file}]]", "--output-format", "json", "--allowedTools", "Write,Bash",
    )  # fmt: skip
    assert file.read_text() == f"{said}\n"
    assert told[-1]["is_error"] is False
    assert f"About {said} the tools said" in told[-1]["result"]
    assert told[-1]["usage"]["input_tokens"] > 0
    check_sessions(stage, target, "claude_code")


def test_claude_code_streams_what_it_hears(stage: Stage, home: Path, work: Path) -> None:
    said, target = f"tok-{secrets.token_hex(5)}", AGENT_TARGETS[0]
    told = run(
        work, claude_environment(stage, target, home, target.model),
        "claude", "-p", f"Think of {said} [[think]]", "--verbose",
        "--output-format", "stream-json", "--include-partial-messages",
    )  # fmt: skip
    kinds = [line["event"]["type"] for line in told if line["type"] == "stream_event"]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert said in told[-1]["result"]


@pytest.mark.parametrize("sockets", [False, True], ids=["http", "socket"])
@pytest.mark.parametrize(("target", "known"), NAMED)
def test_codex_writes_a_file(stage: Stage, home: Path, work: Path, target: Target, known: bool, sockets: bool) -> None:
    said, file = f"tok-{secrets.token_hex(5)}", work / "hello.txt"
    (home / ".codex").mkdir()
    model = target.gpt_model if known else target.model
    (home / ".codex" / "config.toml").write_text(
        CODEX.format(model=model, base=stage.gateway.base, sockets=str(sockets).lower())
    )
    told = run(
        work, {**stage.environment(target, home), "THRIFTGATE_KEY": stage.keys[target.team]},
        "codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
        f"Write {said} [[write {file}]]",
    )  # fmt: skip
    assert file.read_text() == f"{said}\n", told
    if sockets and target.model == RESPONSES_MODEL:  # the header comes with the handshake; HTTP's requests have none
        heard = [request.headers.get("openai-beta", "") for request in stage.brains["responses"].heard]
        assert any(beta.startswith("responses_websockets=") for beta in heard)
    messages = [line["item"]["text"] for line in told if line.get("item", {}).get("type") == "agent_message"]
    assert f"About {said} the tools said" in messages[-1]
    assert told[-1]["type"] == "turn.completed"
    assert told[-1]["usage"]["input_tokens"] > 0
    check_sessions(stage, target, "codex")


def opencode(target: Target, base: str, package: str, address: str) -> bytes:
    """Its configuration: `package` is the AI SDK's provider that it asks through."""
    options = {"baseURL": f"{base}{address}", "apiKey": "{env:THRIFTGATE_KEY}"}
    provider = {"npm": package, "name": "Thriftgate", "options": options, "models": {target.model: {"name": "any"}}}
    return orjson.dumps({"provider": {"thriftgate": provider}, "permission": "allow", "share": "disabled"})


@pytest.mark.parametrize("package", ["@ai-sdk/openai-compatible", "@ai-sdk/openai", "@ai-sdk/anthropic"])
@pytest.mark.parametrize("target", [*AGENT_TARGETS, *CLOUDS], ids=str)
def test_opencode_writes_a_file(stage: Stage, home: Path, work: Path, target: Target, package: str) -> None:
    said, file = f"tok-{secrets.token_hex(5)}", work / "hello.txt"
    (work / "opencode.json").write_bytes(opencode(target, stage.gateway.base, package, "/v1"))
    environment = {
        **stage.environment(target, home),
        "THRIFTGATE_KEY": stage.keys[target.team],
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    told = run(
        work, environment,
        "opencode", "run", "--format", "json", "-m", f"thriftgate/{target.model}", f"Write {said} [[write {file}]]",
    )  # fmt: skip
    assert file.read_text() == f"{said}\n", told
    texts = [line["part"]["text"] for line in told if line["type"] == "text"]
    assert f"About {said} the tools said" in texts[-1]
    check_sessions(stage, target, "opencode")


@pytest.mark.parametrize("target", [*AGENT_TARGETS, *CLOUDS], ids=str)
def test_qwen_code_writes_a_file(stage: Stage, home: Path, work: Path, target: Target) -> None:
    said, file = f"tok-{secrets.token_hex(5)}", work / "hello.txt"
    environment = {
        **stage.environment(target, home),
        "OPENAI_BASE_URL": f"{stage.gateway.base}/v1",
        "OPENAI_API_KEY": stage.keys[target.team],
        "OPENAI_MODEL": target.model,
    }
    done = subprocess.run(
        ["qwen", "--auth-type", "openai", "--yolo", "-p", f"Write {said} [[write {file}]]"],
        env=environment, cwd=work, capture_output=True, text=True, timeout=140, stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    assert file.read_text() == f"{said}\n"
    assert f"About {said} the tools said" in done.stdout
