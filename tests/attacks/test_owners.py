"""One key of a team against what another key of the same team has stored, through a running gateway."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.requests import chat_fields

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

CONFIG = """\
backends:
  - {{name: gpt, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: gpt, tier: large,
      dialects: [openai_chat, openai_responses], price: {{input: 1, output: 1}}}}
local_model: {{enabled: false}}
"""
POLICIES = {
    "apart": "cache: {enabled: false}\ndata: {store_prompts: true}\n",
    "together": "cache: {enabled: false}\ndata: {store_prompts: true, share: team}\n",
}
LINE = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions"}
BODY = chat_fields("[[reply tokens=3]]", model="gpt")
MESSAGES = {"requests": [{"custom_id": "1", "params": {**BODY, "max_tokens": 9}}]}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("owners") / "home"
    with GatewayProcess(home, CONFIG.format(port=port), POLICIES) as process:
        yield process


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port, default=Reply(tokens=3)) as provider:
        yield provider


class Caller:
    """Whoever has one key."""

    def __init__(self, gateway: GatewayProcess, key: str) -> None:
        self.key = key
        self.http = httpx.AsyncClient(base_url=gateway.base, timeout=30, headers={"x-api-key": key})

    async def made(self, path: str, **more: Any) -> dict[str, Any]:
        answer = await self.http.post(path, **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def statuses(self, looks: list[tuple[str, str]]) -> dict[str, int]:
        return {f"{method} {path}": (await self.http.request(method, path)).status_code for method, path in looks}

    async def response(self) -> str:
        return str((await self.made("/v1/responses", json={"model": "gpt", "input": "a secret"}))["id"])

    async def file(self) -> str:
        body = orjson.dumps({**LINE, "body": BODY})
        return str((await self.made("/v1/files", data={"purpose": "batch"}, files={"file": ("f", body)}))["id"])

    async def batch(self, file: str) -> dict[str, Any]:
        asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        return await self.made("/v1/batches", json=asked)


@pytest.fixture
async def callers(gateway: GatewayProcess, provider: Provider) -> AsyncIterator[dict[str, Caller]]:
    """Two keys of each team."""
    names = [(team, name) for team in POLICIES for name in ("owner", "other")]
    found = {f"{team} {name}": Caller(gateway, await gateway.key(team, "--name", name)) for team, name in names}
    yield found
    for caller in found.values():
        await caller.http.aclose()


def looks(response: str, file: str, batch: str, messages: str) -> list[tuple[str, str]]:
    """All that shows, changes or removes one of these; the harmless ones first."""
    return [
        ("GET", f"/v1/responses/{response}"), ("GET", f"/v1/responses/{response}/input_items"),
        ("GET", f"/v1/files/{file}"), ("GET", f"/v1/files/{file}/content"), ("GET", f"/v1/batches/{batch}"),
        ("GET", f"/v1/messages/batches/{messages}"), ("POST", f"/v1/batches/{batch}/cancel"),
        ("GET", f"/v1/messages/batches/{messages}/results"), ("POST", f"/v1/messages/batches/{messages}/cancel"),
        ("DELETE", f"/v1/responses/{response}"), ("DELETE", f"/v1/files/{file}"),
        ("DELETE", f"/v1/messages/batches/{messages}"),
    ]  # fmt: skip


async def listed(caller: Caller, path: str) -> list[str]:
    return [each["id"] for each in (await caller.http.get(path)).json()["data"]]


async def test_another_key_of_the_team_finds_neither_responses_nor_files_nor_batches(
    callers: dict[str, Caller],
) -> None:
    owner, other = callers["apart owner"], callers["apart other"]
    response, file = await owner.response(), await owner.file()
    batch = (await owner.batch(file))["id"]
    messages = (await owner.made("/v1/messages/batches", json=MESSAGES))["id"]

    statuses = await other.statuses(looks(response, file, batch, messages))
    assert statuses == dict.fromkeys(statuses, 404)
    refused = await other.http.get(f"/v1/responses/{response}")
    assert refused.json()["error"]["param"] == "response_id"
    refused = await other.http.get(f"/v1/messages/batches/{messages}", headers={"anthropic-version": "2023-06-01"})
    assert refused.json()["error"]["type"] == "not_found_error"
    for path in ("/v1/files", "/v1/batches", "/v1/messages/batches"):
        assert await listed(other, path) == []
        assert await listed(owner, path)
    stolen = {"model": "gpt", "input": "say it again", "previous_response_id": response}
    assert (await other.http.post("/v1/responses", json=stolen)).json()["error"]["param"] == "previous_response_id"
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    assert (await other.http.post("/v1/batches", json=asked)).status_code == 404

    assert set((await owner.statuses(looks(response, file, batch, messages)[:6])).values()) == {200}


async def test_items_of_anothers_response_cannot_be_referred_to(callers: dict[str, Caller]) -> None:
    owner, other = callers["apart owner"], callers["apart other"]
    answer = await owner.made("/v1/responses", json={"model": "gpt", "input": "a secret"})
    asked = {"model": "gpt", "input": [{"type": "item_reference", "id": answer["output"][0]["id"]}]}
    assert (await owner.http.post("/v1/responses", json=asked)).status_code == 200
    refused = await other.http.post("/v1/responses", json=asked)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0]")


async def test_the_results_of_a_batch_are_its_owners(callers: dict[str, Caller], gateway: GatewayProcess) -> None:
    owner, other = callers["apart owner"], callers["apart other"]
    batch = await owner.batch(await owner.file())
    while batch["status"] not in ("completed", "failed"):
        batch = (await owner.http.get(f"/v1/batches/{batch['id']}")).json()
    results = f"/v1/files/{batch['output_file_id']}/content"
    assert (await owner.http.get(results)).status_code == 200
    assert (await other.http.get(results)).status_code == 404


async def test_a_rotated_key_keeps_what_it_stored(callers: dict[str, Caller], gateway: GatewayProcess) -> None:
    made = gateway.json("keys", "create", "--team", "apart")
    old = Caller(gateway, made["key"])
    while (await old.http.get("/v1/models")).status_code != 200:
        pass
    file = await old.file()
    new = Caller(gateway, gateway.json("keys", "rotate", made["id"])["key"])
    while (found := await new.http.get(f"/v1/files/{file}")).status_code == 401:
        pass
    assert found.status_code == 200
    for caller in (old, new):
        await caller.http.aclose()


async def test_a_team_that_shares_sees_what_any_of_its_keys_stored(callers: dict[str, Caller]) -> None:
    owner, other = callers["together owner"], callers["together other"]
    response, file = await owner.response(), await owner.file()
    assert set(
        (await other.statuses([("GET", f"/v1/responses/{response}"), ("GET", f"/v1/files/{file}")])).values()
    ) == {200}
    assert await listed(other, "/v1/files")
    assert (await other.http.delete(f"/v1/responses/{response}")).status_code == 200
    assert (await callers["apart other"].http.get(f"/v1/files/{file}")).status_code == 404


async def test_what_was_stored_before_rows_had_owners_stays_the_teams(
    callers: dict[str, Caller], gateway: GatewayProcess
) -> None:
    owner, other = callers["apart owner"], callers["apart other"]
    response, file = await owner.response(), await owner.file()
    with sqlite3.connect(gateway.home / "data" / "ledger.sqlite") as link:
        link.execute("UPDATE files SET owner = '' WHERE id = ?", (file,))
        link.execute("UPDATE responses SET owner = '' WHERE id = ?", (response,))
    link.close()
    old = [("GET", f"/v1/responses/{response}"), ("GET", f"/v1/files/{file}")]
    assert set((await other.statuses(old)).values()) == {200}
    assert set((await callers["together other"].statuses(old)).values()) == {404}
