"""Kind `azure` against a resource that checks every address and credential; OpenAI's own SDK is the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncAzureOpenAI
from pydantic import SecretStr, ValidationError

from gateway.backends.fleet import Fleet
from gateway.backends.load.scrape import Scrape, watched
from gateway.backends.providers.azure.provider import Azure as AzureProvider
from gateway.backends.providers.hosted import refuses_foreign_fields
from gateway.backends.resilience.drain import BackendDrains
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest
from gateway.errors import AllBackendsFailed, BackendRefused
from gateway.settings.files import ConfigError
from gateway.settings.gateway import load_settings
from tests.backends.conftest import CallerOf
from tests.fakes.azure import Azure, Resource
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Reply
from tests.support.requests import chat_request, messages_request, request_in, responses_request
from tests.support.waiting import until

KEY = "azure-key-0123456789"
VERSION = "2024-10-21"
DEPLOYMENTS = ["gpt-4o", "our deployment", "größe/4+1"]


@pytest.fixture
async def azure() -> AsyncIterator[Azure]:
    async with Azure(Resource(frozenset(DEPLOYMENTS), keys={KEY})) as resource:
        yield resource


def at(azure: Azure, **changes: Any) -> Backend:
    fields = {
        "name": "azure",
        "kind": "azure",
        "base_url": azure.url,
        "api_key": SecretStr(KEY),
        "model": "gpt-4o",
        "api_version": VERSION,
        **changes,
    }
    return Backend.model_validate({name: value for name, value in fields.items() if value is not None})


def sdk(azure: Azure, version: str = VERSION, **changes: Any) -> AsyncAzureOpenAI:
    return AsyncAzureOpenAI(azure_endpoint=azure.url, api_key=KEY, api_version=version, max_retries=0, **changes)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
async def test_a_chat_is_addressed_as_the_vendors_own_client_does(
    azure: Azure, caller_of: CallerOf, deployment: str
) -> None:
    async with sdk(azure) as client:
        await client.chat.completions.create(model=deployment.replace("/", "%2F"), messages=[])
    await read(await caller_of(at(azure, deployment=deployment)).call(chat_request()))
    theirs, ours = azure.asked
    assert (ours.path, ours.query, ours.credentials) == (
        theirs.path.replace(" ", "%20").replace("+", "%2B").replace("ö", "%C3%B6").replace("ß", "%C3%9F"),
        {"api-version": VERSION},
        {"api-key": KEY},
    )
    assert theirs.credentials.get("api-key") == KEY


async def test_embeddings_are_below_the_deployment_and_responses_beside(azure: Azure, caller_of: CallerOf) -> None:
    version = "2025-03-01-preview"
    async with sdk(azure, version) as client:
        await client.embeddings.create(model="gpt-4o", input="hello")
        await client.responses.create(model="gpt-4o", input="hello")
    await read(await caller_of(at(azure, api_version=version)).call(request_in("openai_embeddings")))
    await read(await caller_of(at(azure, api_version=version)).call(responses_request()))
    theirs, ours = azure.asked[:2], azure.asked[2:]
    assert [(each.path, each.query, each.credentials) for each in ours] == [
        (each.path, each.query, {"api-key": KEY}) for each in theirs
    ]
    assert ours[1].model == "gpt-4o"


async def test_without_a_version_the_newer_address_takes_the_deployment_in_the_body(
    azure: Azure, caller_of: CallerOf
) -> None:
    backend = at(azure, api_version=None, deployment="our deployment")
    for request in (
        chat_request(),
        chat_request(stream=True),
        request_in("openai_embeddings"),
        responses_request(),
        messages_request(),
    ):
        await read(await caller_of(backend).call(request))
    assert [each.path for each in azure.asked] == [
        "/openai/v1/chat/completions",
        "/openai/v1/chat/completions",
        "/openai/v1/embeddings",
        "/openai/v1/responses",
        "/openai/v1/chat/completions",
    ]
    assert {each.model for each in azure.asked} == {"our deployment"}
    assert all(not each.query and each.credentials == {"api-key": KEY} for each in azure.asked)


async def test_a_token_goes_as_bearer_and_is_read_again_when_its_file_changes(azure: Azure, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-token\n")
    azure.resource.tokens = {"first-token"}
    provider = AzureProvider(at(azure, api_key=None, bearer_token=f"file:{file}"), read_again_s=0.01)
    await provider.open()
    try:
        sent = provider.sign([], b"")
        assert (sent, provider.secret) == ([(b"authorization", b"Bearer first-token")], "first-token")
        file.unlink()  # while it is being replaced, the last one is used
        await asyncio.sleep(0.05)
        assert provider.secret == "first-token"
        file.write_text("second-token")
        await until(lambda: provider.secret == "second-token")
        assert provider.sign([], b"") == [(b"authorization", b"Bearer second-token")]
    finally:
        await provider.aclose()


async def test_heads_that_were_used_before_carry_the_new_token(azure: Azure, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-token")
    azure.resource.tokens = {"first-token"}
    provider = AzureProvider(at(azure, api_key=None, bearer_token=f"file:{file}"), read_again_s=0.01)
    fleet = Fleet([at(azure, api_key=None, bearer_token=f"file:{file}")], kinds={"azure": lambda _: provider})
    await fleet.open()
    try:
        await read(await Caller(fleet).call(chat_request()))
        await read(await Caller(fleet).call(chat_request()))
        azure.resource.tokens = {"second-token"}
        file.write_text("second-token")
        await until(lambda: provider.secret == "second-token")
        await read(await Caller(fleet).call(chat_request()))
    finally:
        await fleet.aclose()
    assert [each.credentials for each in azure.asked] == [
        {"authorization": "Bearer first-token"},
        {"authorization": "Bearer first-token"},
        {"authorization": "Bearer second-token"},
    ]


async def test_a_wrong_key_and_an_unknown_deployment_are_the_operators_to_mend(
    azure: Azure, caller_of: CallerOf
) -> None:
    with pytest.raises(AllBackendsFailed, match="does not accept the gateway's key") as refused:
        await caller_of(at(azure, api_key=SecretStr("wrong"))).call(chat_request())
    assert "wrong" not in str(refused.value)
    with pytest.raises(AllBackendsFailed, match="check its `base_url`, `deployment` and `api_version`"):
        await caller_of(at(azure, deployment="nobody")).call(chat_request())
    with pytest.raises(AllBackendsFailed, match="`deployment` and `api_version`"):
        await caller_of(at(azure, api_version="2019-01-01")).call(chat_request())


@pytest.mark.parametrize("make_request", [chat_request, responses_request, messages_request])
async def test_the_content_filter_is_told_to_the_client(azure: Azure, caller_of: CallerOf, make_request: Any) -> None:
    request: CompletionRequest = make_request("FILTER ME")
    with pytest.raises(BackendRefused, match="content management policy") as refused:
        await caller_of(at(azure, api_version="2025-03-01-preview")).call(request)
    assert (refused.value.status, refused.value.code) == (400, "content_filter")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("make_request", "said"),
    [
        (chat_request, b'"finish_reason":"content_filter"'),
        (messages_request, b'"stop_reason":"refusal"'),
        (responses_request, b'"incomplete_details":{"reason":"content_filter"}'),
    ],
)
async def test_an_answer_that_the_filter_cuts_says_so_in_the_clients_dialect(
    azure: Azure, caller_of: CallerOf, make_request: Any, said: bytes, stream: bool
) -> None:
    azure.script(Reply(tokens=3, finish="content_filter"))
    answer = await read(await caller_of(at(azure, dialects=["openai_chat"])).call(make_request(stream=stream)))
    assert said in answer.replace(b": ", b":")


async def test_reserved_units_that_are_used_up_overflow_to_payment_by_token(azure: Azure, caller_of: CallerOf) -> None:
    reserved = at(azure, name="ptu", price={"machine_hour_usd": 50, "billing": "reserved"}, model_group="anywhere")
    by_token = at(azure, name="by-token", model_group="anywhere")
    azure.script(Fail(429, "The deployment has exceeded its provisioned throughput.", retry_after="9"))
    caller = caller_of(reserved, by_token)
    await read(await caller.call(chat_request()))
    assert caller.outcomes == [("ptu", "failed"), ("by-token", "ok")]
    assert not watched(reserved), "a cloud has no /metrics"


async def test_metrics_that_are_wanted_are_asked_for_with_the_key_in_its_header(azure: Azure) -> None:
    scrape = Scrape(at(azure, metrics=True), BackendDrains())
    await scrape.look(0)
    await scrape.aclose()
    asked = azure.exchanges[-1]
    assert (asked.path, asked.header(b"api-key"), asked.header(b"authorization")) == ("/metrics", KEY.encode(), None)


async def test_a_limit_says_when_to_come_again(azure: Azure, caller_of: CallerOf) -> None:
    azure.script(*[Fail(429, "slow down", retry_after="7")] * 3)
    with pytest.raises(AllBackendsFailed) as limited:
        await caller_of(at(azure)).call(chat_request())
    assert limited.value.retry_after_s == 7


async def test_a_stream_begins_with_verdicts_about_the_prompt_and_is_counted(azure: Azure, caller_of: CallerOf) -> None:
    azure.script(Reply(tokens=5))
    caller = caller_of(at(azure))
    answer = await caller.call(chat_request(stream=True))
    text = await read(answer)
    assert b"data: [DONE]" in text
    assert answer.attempt is not None
    assert answer.attempt.usage is not None
    assert answer.attempt.usage.output_tokens == 5


WRONG = [
    ({"base_url": ""}, "base_url must begin with http"),
    ({"base_url": "https://x.openai.azure.com/openai/deployments/gpt-4o"}, "the resource's address alone"),
    ({"base_url": "https://x.openai.azure.com/openai/v1/"}, "the resource's address alone"),
    ({"bearer_token": "env:TOKEN"}, "one of api_key, bearer_token and auth: entra"),
    ({"api_key": None}, "one of api_key, bearer_token and auth: entra"),
    ({"api_key": None, "bearer_token": "eyJ0"}, "bearer_token"),
    ({"api_version": "2024-10-21&x=1"}, "api_version"),
    ({"kind": "openai"}, "api_version: only for kind azure"),
]


@pytest.mark.parametrize(("changes", "problem"), WRONG)
async def test_what_cannot_work_is_refused_at_start(azure: Azure, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        at(azure, **changes)


def test_a_token_that_is_not_there_is_refused_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "backends:\n  - {name: a, kind: azure, base_url: 'https://x.openai.azure.com', model: gpt-4o,\n"
        "     bearer_token: env:NO_SUCH_TOKEN}\n"
    )
    with pytest.raises(ConfigError, match=r"backends\.0\.bearer_token: the environment variable NO_SUCH_TOKEN"):
        load_settings(config, data_dir=tmp_path)


@pytest.mark.parametrize("location", [None, "local", "hosted"])
async def test_prompts_to_it_leave_wherever_its_address_leads(azure: Azure, location: str | None) -> None:
    backend = at(azure, base_url="http://10.0.0.5", location=location)
    assert (backend.hosted, backend.own, backend.provider_name) == (True, False, "azure.ai.openai")
    assert at(azure, base_url="http://10.0.0.5", strength="small", location=location).tier == "hosted"


async def test_the_sdks_errors_are_what_they_are_without_the_gateway(azure: Azure) -> None:
    async with sdk(azure) as client:
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="nobody", messages=[])


MARKED = {
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "hello", "thinking_blocks": []},
    ],
    "tools": [{"type": "function", "function": {"name": "f"}, "cache_control": {"type": "ephemeral"}}],
}


async def test_anthropics_cache_marks_do_not_reach_an_api_that_refuses_them(azure: Azure, caller_of: CallerOf) -> None:
    await read(await caller_of(at(azure)).call(chat_request(**MARKED)))
    assert azure.last.json["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "hello"},
    ]
    assert azure.last.json["tools"] == [{"type": "function", "function": {"name": "f"}}]


@pytest.mark.parametrize(
    ("base_url", "refuses"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("https://x.openai.azure.com/openai/v1", True),
        ("https://openrouter.ai/api/v1", False),
        ("http://10.0.0.5:4000/v1", False),
    ],
)
async def test_resellers_and_proxies_keep_cache_marks(base_url: str, refuses: bool) -> None:
    assert refuses_foreign_fields(Backend(name="b", kind="openai", base_url=base_url, model="gpt-4o")) == refuses
