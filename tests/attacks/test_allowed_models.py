"""A key reaches the backends that its policy, the key itself and the operator open to it, on no way any other."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from gateway.domain.request import DialectName
from tests.e2e.conftest import CONFIG, Providers, ports, providers
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Fail, Reply
from tests.support.naming import unique
from tests.support.requests import post, post_chat
from tests.support.waiting import until

__all__ = ["ports", "providers"]
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]  # processes start, on a machine that is busy

POLICIES = {
    "free": "models: {both: [small, large]}\n",
    "held": "allowed_models: [small]\nmodels: {both: {candidates: [small, large], reference: large}, gpt-4o: large}\n"
    "hedging: {enabled: true}\ntrials: {share: 100%, judge: claude}\ncache: {enabled: false}\n",
    "tiered": "allowed_models: [large, scripted-small]\n",
    "shut": "allowed_models: []\n",
    "other": "cache: {scope: organisation}\n",
    "owners": "cache: {scope: organisation}\n",
}
OWNED = "      window_tokens: 200000,"
"""Of the last backend in CONFIG."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    config = CONFIG.format(**ports).replace(OWNED, f"      teams: [owners, free, held], {OWNED.strip()}")
    home = tmp_path_factory.mktemp("allowed") / "home"
    with GatewayProcess(home, config, POLICIES, {"SMALL_KEY": "sk-upstream-small-secret"}) as process:
        yield process


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.base, timeout=30) as client:
        yield client


async def ask(http: httpx.AsyncClient, key: str, model: str, content: str = "hello there") -> httpx.Response:
    return await post_chat(http, content, key=key, model=model, max_tokens=20, temperature=0)


async def names(http: httpx.AsyncClient, key: str) -> set[str]:
    found = (await http.get("/v1/models", headers={"authorization": f"Bearer {key}"})).json()
    return {each["id"] for each in found["data"]}


@pytest.mark.parametrize("model", ["large", "scripted-large", "gpt-4o", "claude"])
@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic_messages", "openai_embeddings"])
async def test_a_model_that_the_policy_does_not_allow_is_refused_in_the_clients_shape(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient, dialect: DialectName, model: str
) -> None:
    reply = await post(http, dialect, key=await gateway.key("held"), model=model)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (403, "permission_error")
    assert repr(model) in error["message"]
    assert "allowed_models of team held's policy" in error["message"]
    assert ("code" in error) == (dialect != "anthropic_messages")
    assert not providers.large.exchanges
    assert not providers.claude.exchanges


async def test_an_alias_a_fallback_a_reference_and_a_judge_stay_within_what_is_allowed(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient
) -> None:
    key = await gateway.key("held")
    for model in ("both", "auto"):
        for _ in range(3):
            reply = await ask(http, key, model)
            assert (reply.status_code, reply.headers["x-thriftgate-backend"]) == (200, "small")
    providers.small.script(*[Fail(500)] * 8)
    assert (await ask(http, key, "both")).status_code >= 500
    await providers.small.settled()
    assert not providers.large.exchanges
    assert not providers.claude.exchanges


async def test_a_key_is_held_to_less_than_its_policy_and_gets_no_cached_answer_of_the_rest(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient
) -> None:
    free, held = await gateway.key("free"), await gateway.key("free", "--allowed-model", "small")
    question = unique("what does the large one say?")
    providers.large.script(Reply("of the large one"))
    assert "of the large one" in (await ask(http, free, "large", question)).text
    assert (await ask(http, free, "large", question)).headers["x-thriftgate-cache"] == "exact"
    refused = await ask(http, held, "large", question)
    assert refused.status_code == 403
    assert "allowed_models of this key" in refused.json()["error"]["message"]
    assert (await ask(http, held, "small")).status_code == 200
    assert {"small", "auto", "both"} <= await names(http, held)
    assert not {"large", "scripted-large", "claude"} & await names(http, held)


async def test_a_cached_answer_to_an_open_name_is_not_one_of_a_model_that_the_key_may_not_use(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient
) -> None:
    free, held = await gateway.key("free"), await gateway.key("free", "--allowed-model", "small")
    question = unique("what is the answer that both may give?")
    providers.small.script(Fail(500), Fail(500), Fail(500))
    providers.large.script(Reply("of the large one"))
    assert "of the large one" in (await ask(http, free, "both", question)).text
    reply = await ask(http, held, "both", question)
    assert "of the large one" not in reply.text


async def test_a_rotated_key_is_held_to_what_the_old_one_was(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient
) -> None:
    made = await asyncio.to_thread(gateway.json, "keys", "create", "--team", "free", "--allowed-model", "small")
    assert made["allowed_models"] == ["small"]
    rotated = await asyncio.to_thread(gateway.json, "keys", "rotate", made["id"])

    async def known() -> httpx.Response | None:
        reply = await ask(http, rotated["key"], "large")
        return reply if reply.status_code != 401 else None

    assert (await until(known)).status_code == 403


async def test_a_list_names_tiers_and_models_too_and_an_empty_one_opens_nothing(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient
) -> None:
    tiered, shut = await gateway.key("tiered"), await gateway.key("shut")
    assert [(await ask(http, tiered, model)).status_code for model in ("small", "large", "claude")] == [200, 200, 403]
    assert [(await ask(http, shut, model)).status_code for model in ("small", "auto")] == [403, 403]
    assert await names(http, shut) == set()


async def test_a_backend_with_teams_serves_no_other_team_by_any_name_nor_from_a_shared_cache(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient
) -> None:
    owner, other = await gateway.key("owners"), await gateway.key("other")
    asked = unique("hello there")
    assert (await ask(http, owner, "claude", asked)).status_code == 200
    for model in ("claude", "scripted-claude"):
        reply = await ask(http, other, model, asked)
        assert reply.status_code == 403
        assert "`teams` of the backend claude" in reply.json()["error"]["message"]
    counted = await http.post(
        "/v1/messages/count_tokens",
        json={"model": "claude", "messages": [{"role": "user", "content": "hello"}]},
        headers={"x-api-key": other, "anthropic-version": "2023-06-01"},
    )
    assert (counted.status_code, counted.json()["error"]["type"]) == (403, "permission_error")
    assert "claude" in await names(http, owner)
    assert "claude" not in await names(http, other)
    assert len(providers.claude.exchanges) == 1


async def test_what_is_allowed_takes_effect_with_the_policys_next_edit(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient
) -> None:
    team = unique("moving")
    key = await gateway.key(team)
    assert (await ask(http, key, "large")).status_code == 200
    gateway.write_policy(team, "allowed_models: [small]\n")

    async def refused() -> bool:
        return (await ask(http, key, "large")).status_code == 403

    await until(refused)


def test_check_names_what_no_backend_is_called(gateway: GatewayProcess) -> None:
    file = gateway.folder / "wrong.yaml"
    try:
        file.write_text("team: wrong\nallowed_models: [gpt-99]\n")
        done: subprocess.CompletedProcess[str] = gateway.run("check", check=False)
        assert done.returncode == 2
        assert "wrong.yaml:2: allowed_models.0: there is no backend, model or tier called 'gpt-99'" in done.stdout
    finally:
        file.unlink()
