"""status, connect, backup, restore, and the data directory that a command takes, with a real gateway."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from gateway.cli.teams.client_settings import CLIENTS, Connection, write
from gateway.settings.running import register, running, running_on
from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support import prepared
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends:
  - {{name: only, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, context_window: 8000,
      price: {{input: 1, output: 10}}}}
local_model: {{enabled: false}}
"""


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of one user, who runs nothing but this file's gateway."""
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int, user: Path) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("gateway") / "home"
    environment = {"XDG_STATE_HOME": str(user / "state")}
    policies = {"search": "cache: {enabled: false}\n"}
    with GatewayProcess(home, CONFIG.format(port=port), policies, environment) as process:
        yield process


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port) as provider:
        yield provider


async def call(user: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`thriftgate WORDS` as this user types it in a folder of theirs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("THRIFTGATE_")}
    environment |= {"HOME": str(user), "XDG_STATE_HOME": str(user / "state"), **more}
    environment.pop("XDG_DATA_HOME", None)
    return await asyncio.to_thread(prepared.run, words, environment, user)


async def test_status_names_the_running_gateway_and_ends_with_0(gateway: GatewayProcess, user: Path) -> None:
    done = await call(user, "status", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = orjson.loads(done.stdout)
    assert row["url"] == gateway.base
    assert row["state"] == "ready"
    assert row["data_dir"] == str(gateway.home / "data")
    assert row["pid"] == gateway.facts["pid"]


async def test_status_without_a_gateway_ends_with_1(tmp_path: Path) -> None:
    done = await call(tmp_path, "status")
    assert done.returncode == 1
    assert "No gateway of this user is running" in done.stdout


async def test_a_key_made_elsewhere_is_one_of_the_only_running_gateway(gateway: GatewayProcess, user: Path) -> None:
    done = await call(user, "keys", "create", "--team", "search", "--json")
    assert done.returncode == 0, done.stderr
    assert str(gateway.home / "data") in done.stderr
    key = orjson.loads(done.stdout)["id"]
    assert key in [row["id"] for row in gateway.json("keys", "list")]


@pytest.mark.parametrize("named", ["option", "environment"])
async def test_a_named_directory_is_obeyed_with_a_warning(
    gateway: GatewayProcess, user: Path, tmp_path: Path, named: str
) -> None:
    other = str(tmp_path / "other")
    words = ("keys", "create", "--team", "search", "--json")
    if named == "option":
        done = await call(user, *words, "--data-dir", other)
    else:
        done = await call(user, *words, THRIFTGATE_DATA_DIR=other)
    assert done.returncode == 0, done.stderr
    assert f"add --data-dir {gateway.home / 'data'}" in done.stderr
    key = orjson.loads(done.stdout)["id"]
    assert key not in [row["id"] for row in gateway.json("keys", "list")]


async def test_two_running_gateways_are_named_and_none_is_taken(gateway: GatewayProcess, user: Path) -> None:
    environment = {"XDG_STATE_HOME": str(user / "state")}
    other = GatewayProcess(user / "second", CONFIG.format(port=free_port()), {}, environment)
    with other:
        done = await call(user, "keys", "create", "--team", "search")
        assert done.returncode == 0
        assert gateway.base in done.stderr
        assert other.base in done.stderr
        assert len(orjson.loads((await call(user, "keys", "list", "--json")).stdout)) == 1


def test_a_killed_gateway_is_not_among_those_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    facts = {"pid": ended.pid, "url": "http://127.0.0.1:1", "started_at": 1.0, "workers": []}
    (tmp_path / "runtime.json").write_bytes(orjson.dumps(facts))
    register(ended.pid, tmp_path)
    assert running() == []
    assert running_on(tmp_path) is None
    assert list((tmp_path / "state" / "thriftgate" / "running").iterdir()) == []


@pytest.mark.parametrize("client", ["claude-code", "env"])
async def test_connect_makes_a_key_and_tries_it(
    gateway: GatewayProcess, provider: Provider, user: Path, client: str
) -> None:
    done = await call(user, "connect", client, "--team", "search", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    made = orjson.loads(done.stdout)
    assert made["check"]["status"] == 200
    assert made["check"]["backend"] == "only"
    assert made["key"] in made["settings"]
    assert gateway.base in made["settings"]
    path = "/v1/messages" if client == "claude-code" else "/v1/chat/completions"
    asked = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.post(gateway.base + path, json=asked, headers={"x-api-key": made["key"]})
    assert answer.status_code == 200


async def test_connect_says_what_a_wrong_key_is_answered(gateway: GatewayProcess, user: Path) -> None:
    done = await call(user, "connect", "codex", "--key", "tg-" + "x" * 40)
    assert done.returncode == 1
    assert "the gateway answered 401" in done.stderr


async def test_connect_leaves_nothing_behind_where_its_request_failed(
    gateway: GatewayProcess, provider: Provider, user: Path
) -> None:
    done = await call(user, "connect", "claude-code", "--team", "nosuch", "--model", "no-such-model", "--write")
    assert done.returncode == 1
    assert "team nosuch has no policy of its own" in done.stderr
    assert "No settings were written, and the new key" in done.stderr
    assert not list((user / ".claude").glob("*"))
    (key,) = [row for row in gateway.json("keys", "list") if row["team"] == "nosuch"]
    assert key["id"] in done.stderr
    assert key["revoked_at"] is not None


async def test_commands_use_the_running_gateways_files_from_any_folder(gateway: GatewayProcess, user: Path) -> None:
    checked = await call(user, "check")
    assert f"no mistakes in {gateway.home / 'gateway.yaml'}" in checked.stdout
    added = await call(user, "team", "add", "fresh", "--json")
    assert Path(orjson.loads(added.stdout)["policy"]).parent == gateway.home / "policies"
    assert not (user / "policies").exists()
    listed = await call(user, "backends", "list", "--data-dir", str(gateway.home / "data"), "--json")
    assert [row["name"] for row in orjson.loads(listed.stdout)] == ["only"]


async def test_connect_needs_a_running_gateway_or_an_address(tmp_path: Path) -> None:
    done = await call(tmp_path, "connect", "env", "--key", "tg-" + "x" * 40)
    assert done.returncode == 1
    assert "thriftgate serve" in done.stderr
    done = await call(tmp_path, "connect", "env", "--key", "tg-1", "--url", "http://127.0.0.1:1", "--no-check")
    assert done.returncode == 0
    assert "OPENAI_BASE_URL=http://127.0.0.1:1/v1" in done.stdout


AT = Connection("http://gw.example", "tg-secret", "auto")


def test_a_written_file_keeps_the_users_settings_and_a_copy(tmp_path: Path) -> None:
    client = CLIENTS["claude-code"]
    path = tmp_path / client.file
    path.parent.mkdir()
    path.write_text('{"theme": "dark", "env": {"MINE": "1", "ANTHROPIC_BASE_URL": "http://old"}}')
    assert write(client, tmp_path, AT) == path
    settings: dict[str, Any] = orjson.loads(path.read_bytes())
    assert settings["theme"] == "dark"
    assert settings["env"]["MINE"] == "1"
    assert settings["env"]["ANTHROPIC_BASE_URL"] == "http://gw.example"
    assert settings["env"]["ANTHROPIC_AUTH_TOKEN"] == "tg-secret"
    assert b"http://old" in path.with_name("settings.json.before-thriftgate").read_bytes()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["// a comment\n{}", "[]", '{"env": 3}'])
def test_a_file_that_cannot_be_merged_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    client = CLIENTS["claude-code"]
    path = tmp_path / client.file
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ValueError, match="paste the lines instead"):
        write(client, tmp_path, AT)
    assert path.read_text() == text


def test_codex_settings_are_toml() -> None:
    settings = tomllib.loads(CLIENTS["codex"].lines(AT).replace("export ", "# export "))
    assert settings["model_providers"]["thriftgate"]["base_url"] == "http://gw.example/v1"


@pytest.mark.parametrize("name", CLIENTS)
def test_every_clients_lines_have_address_and_key(name: str) -> None:
    lines = CLIENTS[name].lines(AT)
    assert AT.url in lines
    assert AT.key in lines


async def _spend(gateway: GatewayProcess) -> str:
    key = await gateway.key("search")
    async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
        asked = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
        for _ in range(3):
            answer = await http.post(f"{gateway.base}/v1/chat/completions", json=asked)
            assert answer.status_code == 200
    return key


async def test_a_copy_of_a_running_gateway_restores_keys_and_spend(
    gateway: GatewayProcess, provider: Provider, user: Path, tmp_path: Path
) -> None:
    key = await _spend(gateway)
    done = await call(user, "backup", str(tmp_path / "copy"), "--json")  # at once: some rows are in the journal only
    assert done.returncode == 0, done.stdout + done.stderr
    assert orjson.loads(done.stdout)["ok"] is True
    spent = gateway.usage("search")["total"]

    new = tmp_path / "new" / "data"
    done = await call(tmp_path, "restore", str(tmp_path / "copy"), "--data-dir", str(new), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert orjson.loads(done.stdout)["ok"] is True
    second = GatewayProcess(tmp_path / "new", CONFIG.format(port=free_port()), {}, gateway.environment)
    with second:
        async with httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {key}"}) as http:
            assert (await http.get(f"{second.base}/v1/models")).status_code == 200
        for _ in range(100):
            if second.usage("search")["total"] == spent:
                break
            await asyncio.sleep(0.1)
        assert second.usage("search")["total"] == spent
    assert second.run("ledger", "verify").returncode == 0


async def test_a_copy_is_refused_over_data_and_with_changed_files(
    gateway: GatewayProcess, user: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    assert (await call(user, "backup", str(copy))).returncode == 0
    again = await call(user, "backup", str(copy))
    assert again.returncode == 1
    assert "is not empty" in again.stderr
    over = await call(user, "restore", str(copy), "--data-dir", str(gateway.home / "data"))
    assert over.returncode == 1
    assert "stop it first" in over.stderr
    with (copy / "ledger.sqlite").open("ab") as file:
        file.write(b"x")
    changed = await call(user, "restore", str(copy), "--data-dir", str(tmp_path / "fresh"))
    assert changed.returncode == 1
    assert "was changed since `backup` wrote it" in changed.stderr
    assert not (tmp_path / "fresh").exists()


async def test_a_manifest_cannot_name_files_outside_the_copy(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "copy" / "backup.json").write_bytes(orjson.dumps({"files": {"../secret": "0"}}))
    done = await call(tmp_path, "restore", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "fresh"))
    assert done.returncode == 1
    assert "outside the folder" in done.stderr


async def test_a_directory_without_a_ledger_is_not_copied(tmp_path: Path) -> None:
    done = await call(tmp_path, "backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "contains no ledger" in done.stderr


async def test_up_shows_people_what_they_need_and_keeps_the_logs_in_files(
    user: Path, tmp_path: Path, provider: Provider, port: int
) -> None:
    (tmp_path / "gateway.yaml").write_text(CONFIG.format(port=port))
    data, address = tmp_path / "data", free_port()
    environment = {
        **os.environ,
        "HOME": str(user),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": os.getcwd(),
    }
    words = ["up", "--config", str(tmp_path / "gateway.yaml"), "--data-dir", str(data), "--port", str(address)]
    with (tmp_path / "shown").open("wb") as shown:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli.main", *words],
            stdout=shown,
            stderr=shown,
            cwd=tmp_path,
            env=environment,
        )
    try:
        await until(lambda: "Ctrl-C ends" in (tmp_path / "shown").read_text(), 45)
        text = (tmp_path / "shown").read_text()
        assert f"Listening on http://127.0.0.1:{address}/v1" in text
        assert "✓ only: answers" in text or "! only: its list of models" in text
        async with httpx.AsyncClient(timeout=30) as http:
            await http.get(f"http://127.0.0.1:{address}/v1/models", headers={"authorization": "Bearer tg-unknown"})
            refused = await http.post(f"http://127.0.0.1:{address}/v1/chat/completions", json={})
            assert refused.status_code == 401
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 45) == 0
    assert (tmp_path / "shown").read_text().endswith("Ended.\n")
    assert "keys belong to a data directory" in (data / "gateway.log").read_text().lower()
    assert orjson.loads((data / "access.log").read_text().splitlines()[-1])["status"] == 401


async def test_drain_stops_new_requests_to_a_backend_until_it_is_undone(
    gateway: GatewayProcess, provider: Provider, user: Path
) -> None:
    done = await call(user, "drain", "only", "--for", "10m", "--reason", "new weights")
    assert done.returncode == 0, done.stderr
    assert "only gets no new requests until" in done.stdout
    (row,) = orjson.loads((await call(user, "drain", "--json")).stdout)
    assert (row["name"], row["reason"]) == ("only", "new weights")
    (listed,) = orjson.loads((await call(user, "backends", "list", "--json")).stdout)
    assert listed["drained_until"] == row["until"]
    table = (await call(user, "backends", "list")).stdout
    assert "only (drained)" in table
    assert "no new requests until" in table
    assert "drained: only" in (await call(user, "top", "--once")).stdout
    assert orjson.loads((await call(user, "status", "--json")).stdout)[0]["drained"] == ["only"]
    done = await call(user, "drain", "only", "--undo")
    assert "only gets requests again." in done.stdout
    assert orjson.loads((await call(user, "drain", "--json")).stdout) == []
    wrong = await call(user, "drain", "olny")
    assert wrong.returncode == 2
    assert "did you mean only?" in wrong.stderr


async def test_drain_of_a_gateway_ends_it_gently(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    gateway = GatewayProcess(tmp_path / "gateway", CONFIG.format(port=free_port()), {}, state)
    gateway.start()
    try:
        done = await call(tmp_path, "drain", "--gateway")
        assert done.returncode == 0, done.stderr
        assert f"{gateway.base} ended in" in done.stdout
        assert gateway.process is not None
        assert gateway.process.wait(timeout=10) == 0
    finally:
        gateway.stop()
