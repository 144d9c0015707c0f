"""Names, prompts and models that a terminal would obey: markup, escape sequences, hyperlinks, reversed text."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import orjson
import pytest
import pytest_asyncio

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.requests import post_chat

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]  # processes start

HOSTILE = (
    "[/bold] [link=http://evil.test]click[/link] :boom: \x1b]8;;http://evil.test\x07here\x1b[2J\x9b31m\u202eoops\r"
)
CONFIG = """\
trials: {{cache_checks: 0}}
admin_api: true
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: {model}, tier: small,
      window_tokens: 128000}}
  - {{name: large, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: {model}, tier: large,
      window_tokens: 128000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
POLICY = """\
models: {{auto: {{candidates: [small, large]}}, {model}: large}}
"""
COMMANDS = [
    *(("keys", "list"), ("usage", "--by", "model,key"), ("usage", "--by", "tag:who"), ("usage", "--savings")),
    *(("usage", "--by", "model", "--format", "csv"), ("usage", "--format", "focus"), ("ledger", "unpriced")),
    *(("ledger", "verify"), ("cache", "show"), ("cache", "stats"), ("alerts", "list"), ("prices", "show")),
    *(("explain", HOSTILE, "--team", "search"), ("explain", "hello", "--model", HOSTILE, "--team", "search")),
    *(("doctor",), ("check",), ("router", "status"), ("breakeven",), ("keys", "revoke", HOSTILE)),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    model = orjson.dumps(HOSTILE.replace("\r", "")).decode().replace("\x9b", "\\x9b")
    config = CONFIG.format(port=port, model=model)
    policies = {"search": POLICY.format(model=model)}
    with GatewayProcess(tmp_path_factory.mktemp("terminal") / "home", config, policies) as process:
        yield process


@pytest_asyncio.fixture
async def used(gateway: GatewayProcess, port: int) -> AsyncIterator[GatewayProcess]:
    """With a hostile key that has asked hostile prompts of hostile models."""
    key = await gateway.key("search", "--name", HOSTILE)
    headers = {"authorization": f"Bearer {key}", "x-thriftgate-tags": "who=[/bold]"}
    async with Provider(port=port), httpx.AsyncClient(base_url=gateway.base, timeout=30) as http:
        for model in ("small", "large", HOSTILE.replace("\r", "")):
            reply = await post_chat(http, HOSTILE, headers=headers, model=model, temperature=0)
            assert reply.status_code == 200
        yield gateway


def obeyed(text: str) -> set[str]:
    return {
        repr(char) for char in text if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")
    }


async def test_every_command_prints_stored_text_as_text(used: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # so that no name is broken over lines
    wrong = {}
    for words in COMMANDS:
        for form in ((), ("--json",)):
            done = used.run(*words, *form, check=False)
            printed = done.stdout + done.stderr
            if obeyed(printed) or "Traceback" in printed:
                wrong[words, form] = sorted(obeyed(printed)), printed[-2000:]
    assert wrong == {}
    listed = used.run("keys", "list").stdout
    assert all(part in listed for part in ("[/bold]", "[link=http://evil.test]", ":boom:", "\\x1b]8;;http://evil.test"))
    (key,) = used.json("keys", "list")
    assert key["name"] == HOSTILE


async def test_colours_of_our_own_bring_no_links_of_others(
    used: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for words in (("keys", "list"), ("cache", "show"), ("usage", "--by", "model")):
        assert "\x1b]8" not in used.run(*words).stdout


async def test_the_gateways_own_log_is_text(used: GatewayProcess) -> None:
    assert obeyed(used.log) == set()


def test_a_policy_file_cannot_write_to_the_terminal(gateway: GatewayProcess, tmp_path: Path) -> None:
    policy = tmp_path / "evil.yaml"
    policy.write_text('team: evil\n"\\e]8;;http://evil.test\\a[/bold]": 1\n')
    done = gateway.run("check", "--policies", str(tmp_path), check=False)
    assert done.returncode
    assert obeyed(done.stdout + done.stderr) == set()
