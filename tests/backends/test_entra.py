"""Tokens of Microsoft Entra: requested byte by byte as documented, replaced in time, never shown."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from gateway.backends.fleet import Fleet
from gateway.backends.providers.azure.provider import Azure as AzureProvider
from gateway.backends.providers.azure.tokens import IMDS, EntraTokens, authority, read_token
from gateway.backends.providers.renewal import EARLY_S
from gateway.backends.reachability import reach
from gateway.domain.backend import Backend
from gateway.errors import AllBackendsFailed, BackendFailed
from gateway.settings.environment import proxy_for
from gateway.settings.files import ConfigError
from gateway.settings.gateway import load_settings
from tests.backends.conftest import backend_at
from tests.fakes.azure import Azure, Resource
from tests.fakes.caller import Caller, read
from tests.fakes.entra import ASSERTION, CLIENT, RESOURCE, SECRET, TENANT, Entra
from tests.fakes.provider import Provider, Reply
from tests.support.requests import chat_request
from tests.support.waiting import until

QUERY = "resource=https%3A%2F%2Fcognitiveservices.azure.com"


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "IDENTITY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OUR_SECRET", SECRET)


@pytest.fixture
async def entra() -> AsyncIterator[Entra]:
    async with Entra() as server:
        yield server


@pytest.fixture
async def azure(entra: Entra) -> AsyncIterator[Azure]:
    async with Azure(Resource(frozenset({"gpt-4o"}), tokens=entra.tokens)) as resource:
        yield resource


def at(entra: Entra | None, base_url: str = "https://x.openai.azure.com", **changes: Any) -> Backend:
    """The backend of an application with a client secret."""
    fields = {
        "name": "azure",
        "kind": "azure",
        "base_url": base_url,
        "model": "gpt-4o",
        "auth": "entra",
        "tenant_id": TENANT,
        "client_id": CLIENT,
        "client_secret": "env:OUR_SECRET",
        "authority_host": entra.url if entra else "https://login.example.com",
        **changes,
    }
    return Backend.model_validate({name: value for name, value in fields.items() if value is not None})


def machine(entra: Entra, **changes: Any) -> EntraTokens:
    """The tokens of a machine's identity, or of what the environment names."""
    nothing = dict.fromkeys(("tenant_id", "client_id", "client_secret", "authority_host"))
    return EntraTokens(at(entra, **{**nothing, **changes}), imds=entra.url)


@pytest.fixture
async def caller(entra: Entra, azure: Azure) -> AsyncIterator[Callable[..., Caller]]:
    made = []

    def build(*others: Backend, tokens: EntraTokens | None = None) -> Caller:
        backend = at(entra, azure.url)
        kinds = {**_kinds(), "azure": lambda each: AzureProvider(each, tokens=tokens)}
        made.append(Fleet([backend, *others], kinds=kinds))
        return Caller(made[-1])

    yield build
    for fleet in made:
        await fleet.aclose()


def _kinds() -> dict[str, Any]:
    from gateway.backends.fleet import KINDS

    return dict(KINDS)


async def test_an_application_gets_its_token_for_its_secret(entra: Entra) -> None:
    tokens = EntraTokens(at(entra))
    token = await tokens.current()
    assert (token.value, entra.granted) == ("eyJ0.secret.1", ["secret"])
    assert token.expires_at is not None
    assert 3590 < token.expires_at - time.time() <= 3599
    assert await tokens.current() is token


async def test_a_secret_in_a_file_is_read_for_each_token(entra: Entra, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("an old secret")
    tokens = EntraTokens(at(entra, client_secret=f"file:{tmp_path / 'secret'}"))
    with pytest.raises(BackendFailed, match="azure has no token of Microsoft Entra"):
        await tokens.current()
    (tmp_path / "secret").write_text(SECRET + "\n")
    await asyncio.sleep(1.05)  # at least a second lies between two requests that nothing else triggers
    assert (await tokens.current()).value == "eyJ0.secret.1"


async def test_the_environment_may_name_application_and_secret(entra: Entra, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"TENANT_ID": TENANT, "CLIENT_ID": CLIENT, "CLIENT_SECRET": SECRET, "AUTHORITY_HOST": f"{entra.url}/"}
    for name, value in given.items():
        monkeypatch.setenv(f"AZURE_{name}", value)
    assert (await machine(entra).current()).value == "eyJ0.secret.1"


async def test_the_secret_of_another_application_is_not_used(entra: Entra, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TENANT_ID": TENANT, "CLIENT_ID": "another", "CLIENT_SECRET": SECRET}.items():
        monkeypatch.setenv(f"AZURE_{name}", value)
    assert (await machine(entra, client_id=CLIENT).current()).value == "eyJ0.instance.1"


async def test_a_workload_identity_signs_with_the_token_in_its_file(
    entra: Entra, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(ASSERTION + "\n")
    given = {"TENANT_ID": TENANT, "CLIENT_ID": CLIENT, "FEDERATED_TOKEN_FILE": str(tmp_path / "token")}
    for name, value in (given | {"AUTHORITY_HOST": f"{entra.url}/"}).items():
        monkeypatch.setenv(f"AZURE_{name}", value)
    assert (await machine(entra).current()).value == "eyJ0.assertion.1"
    (tmp_path / "token").unlink()
    with pytest.raises(BackendFailed):
        await machine(entra).current()


@pytest.mark.parametrize("client", [None, CLIENT])
async def test_a_machines_identity_comes_from_its_metadata_endpoint(entra: Entra, client: str | None) -> None:
    assert (await machine(entra, client_id=client).current()).value == "eyJ0.instance.1"
    beside = f"&client_id={client}" if client else ""
    assert entra.asked == [f"/metadata/identity/oauth2/token?api-version=2018-02-01&{QUERY}{beside}"]


@pytest.mark.parametrize("client", [None, CLIENT])
async def test_an_apps_identity_comes_from_the_endpoint_in_its_environment(
    entra: Entra, monkeypatch: pytest.MonkeyPatch, client: str | None
) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{entra.url}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "853b9a84-5bfa-4b22-a3f3-0b9a43d9ad8a")
    token = await machine(entra, client_id=client).current()
    assert token.value == "eyJ0.service.1"
    assert token.expires_at is not None
    assert 3590 < token.expires_at - time.time() <= 3599
    beside = f"&client_id={client}" if client else ""
    assert entra.asked == [f"/msi/token?api-version=2019-08-01&{QUERY}{beside}"]


async def test_secrets_go_to_no_other_machine_in_plain_text(entra: Entra, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "http://login.example.com")
    tokens = machine(entra, tenant_id=TENANT, client_id=CLIENT, client_secret="env:OUR_SECRET")
    with pytest.raises(BackendFailed):
        await tokens.current()
    assert "authority_host must be an address such as https://" in tokens.trouble
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://metadata.example.com/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "h")
    tokens = machine(entra)
    with pytest.raises(BackendFailed):
        await tokens.current()
    assert "IDENTITY_ENDPOINT names metadata.example.com" in tokens.trouble


def test_the_metadata_endpoint_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example.com:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    assert proxy_for("http://login.example.com") == "http://proxy.example.com:3128"
    assert proxy_for(IMDS) == ""


@pytest.mark.parametrize(
    "host", ["http://10.0.0.1", "ftp://x", "https://", "https://u:p@x", "https://x/tenant", "https://x?y", "x", ""]
)
def test_an_authority_is_an_address_alone(host: str) -> None:
    with pytest.raises(ValueError, match="authority_host"):
        authority(host)


def test_sovereign_clouds_and_this_machine_may_be_asked() -> None:
    assert authority("https://login.microsoftonline.us/") == "https://login.microsoftonline.us"
    assert authority("http://127.0.0.1:8080") == "http://127.0.0.1:8080"


async def test_simultaneous_calls_share_one_request(entra: Entra, azure: Azure, caller: Callable[..., Caller]) -> None:
    calls = caller()
    entra.wait = asyncio.Event()
    asking = [asyncio.ensure_future(Caller(calls.fleet).call(chat_request())) for _ in range(20)]
    await until(lambda: bool(entra.asked))
    entra.wait.set()
    for answer in await asyncio.gather(*asking):
        await read(answer)
    assert entra.granted == ["secret"]
    assert {tuple(each.credentials.items()) for each in azure.asked} == {(("authorization", "Bearer eyJ0.secret.1"),)}


async def test_no_call_waits_while_the_token_is_valid(entra: Entra) -> None:
    entra.life_s = int(EARLY_S)
    tokens = EntraTokens(at(entra))
    first = await tokens.current()
    entra.wait = asyncio.Event()
    await asyncio.sleep(1.05)
    assert await asyncio.wait_for(tokens.current(), 0.5) is first
    await until(lambda: len(entra.asked) == 2)
    assert await asyncio.wait_for(tokens.current(), 0.5) is first
    entra.wait.set()
    await until(lambda: len(entra.granted) == 2)
    await until(lambda: not tokens.trouble)
    await asyncio.sleep(0.05)
    assert (await tokens.current()).value == "eyJ0.secret.2"
    assert len(entra.asked) == 2


async def test_a_valid_token_outlives_a_failing_refresh_and_an_expired_one_does_not(
    entra: Entra, caplog: pytest.LogCaptureFixture
) -> None:
    entra.life_s = 2
    tokens = EntraTokens(at(entra))
    first = await tokens.current()
    entra.down = True
    await asyncio.sleep(1.05)
    assert await tokens.current() is first, "the refresh fails in the background"
    await until(lambda: "AADSTS90033" in tokens.trouble)
    await asyncio.sleep(1.0)
    for _ in range(5):
        with pytest.raises(BackendFailed, match="azure has no token of Microsoft Entra") as failed:
            await tokens.current()
        assert failed.value.needs_operator
    assert len(entra.asked) <= 3, "a server that is down is not asked by each call"
    lines = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "temporarily_unavailable (AADSTS90033)" in caplog.text
    assert SECRET not in caplog.text
    assert first.value not in caplog.text


async def test_callers_share_a_failure_and_the_log_has_it_once(entra: Entra, caplog: pytest.LogCaptureFixture) -> None:
    entra.down = True
    tokens = EntraTokens(at(entra))
    found = await asyncio.gather(*[tokens.current() for _ in range(20)], return_exceptions=True)
    assert {type(each) for each in found} == {BackendFailed}
    assert len(entra.asked) == 1
    await asyncio.sleep(1.05)
    with pytest.raises(BackendFailed):
        await tokens.current()
    assert len(entra.asked) == 2
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1
    entra.down = False
    await asyncio.sleep(2.05)  # the pause doubles with each failure
    assert (await tokens.current()).value == "eyJ0.secret.1"


async def test_without_a_token_the_next_backend_answers_and_without_one_it_is_502(
    entra: Entra, caller: Callable[..., Caller]
) -> None:
    entra.down = True
    async with Provider() as other:
        calls = caller(backend_at(other, "other", tier="hosted"))
        await read(await calls.call(chat_request()))
        assert calls.outcomes == [("azure", "failed"), ("other", "ok")]
    alone = caller()
    with pytest.raises(AllBackendsFailed, match="has no token of Microsoft Entra") as failed:
        await alone.call(chat_request())
    assert failed.value.status == 502
    assert TENANT not in str(failed.value)
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_token_that_was_revoked_is_replaced_once_for_all(
    entra: Entra, azure: Azure, caller: Callable[..., Caller], stream: bool
) -> None:
    calls = caller()
    await read(await calls.call(chat_request(stream=stream)))
    entra.tokens.clear()  # revoked
    answers = await asyncio.gather(*[Caller(calls.fleet).call(chat_request(stream=stream)) for _ in range(8)])
    for answer in answers:
        await read(answer)
    assert entra.granted == ["secret", "secret"]
    assert azure.asked[-1].credentials == {"authorization": "Bearer eyJ0.secret.2"}
    await read(await calls.call(chat_request(stream=stream)))
    assert len(entra.granted) == 2


async def test_a_resource_that_refuses_every_token_causes_one_more_request(
    entra: Entra, azure: Azure, caller: Callable[..., Caller]
) -> None:
    azure.resource.tokens = set()
    calls = caller()
    for _ in range(3):
        with pytest.raises(AllBackendsFailed, match="check its `client_id` and the roles of its identity"):
            await Caller(calls.fleet).call(chat_request())
    assert len(entra.granted) == 2


async def test_a_stream_goes_on_after_its_token_has_expired(
    entra: Entra, azure: Azure, caller: Callable[..., Caller]
) -> None:
    azure.script(Reply(tokens=6, drip_s=0.02))
    calls = caller()
    answer = await calls.call(chat_request(stream=True))
    entra.tokens.clear()
    assert b"data: [DONE]" in await read(answer)
    await read(await calls.call(chat_request(stream=True)))
    assert entra.granted == ["secret", "secret"]


async def test_a_clock_that_is_ahead_does_not_stop_the_service(entra: Entra, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint of an app names the time of expiry, which seems to have passed if this machine's clock is wrong."""
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{entra.url}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "853b9a84-5bfa-4b22-a3f3-0b9a43d9ad8a")
    entra.life_s = -7200
    tokens = machine(entra)
    for _ in range(3):
        assert (await tokens.current()).value == "eyJ0.service.1"
    assert len(entra.granted) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"access_token": "t"},
        {"access_token": "", "expires_in": 1},
        {"access_token": "a\r\nb", "expires_in": 1},
        {"access_token": 5, "expires_in": 1},
        {"access_token": "t", "expires_in": "soon"},
        {"access_token": "t", "expires_in": None, "expires_on": "1/1/2030"},
        {"access_token": "t", "expires_in": [1]},
    ],
)
def test_an_answer_without_a_usable_token_is_refused(answer: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_token(orjson.dumps(answer), 0.0)


async def test_a_wrong_secret_is_named_with_its_remedy_and_not_shown(
    entra: Entra, azure: Azure, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    well = await reach(at(entra, azure.url))
    assert well.trouble == ""
    assert azure.exchanges[-1].header(b"authorization") == f"Bearer {next(iter(entra.tokens))}".encode()
    monkeypatch.setenv("OUR_SECRET", "wrong-secret-words")
    reached = await reach(at(entra, azure.url))
    assert reached.trouble == (
        "gets no token of Microsoft Entra: 127.0.0.1 answered 401: invalid_client (AADSTS7000215); client_secret is "
        "wrong; give the secret's value, not its id"
    )
    assert SECRET not in caplog.text
    assert "wrong-secret-words" not in caplog.text


async def test_no_call_waits_for_a_token_beyond_its_deadline(
    entra: Entra, azure: Azure, caller: Callable[..., Caller]
) -> None:
    entra.wait = asyncio.Event()
    calls = caller()
    began = time.monotonic()
    with pytest.raises(AllBackendsFailed, match="got no token of Microsoft Entra in time"):
        await calls.call(chat_request(), within_s=0.3)
    assert time.monotonic() - began < 5
    assert calls.outcomes == [("azure", "failed")]
    assert calls.record.attempts[0].usage is None, "the prompt was not sent, so nothing is estimated"
    assert not azure.asked
    reached = await reach(at(entra, azure.url), 0.2)
    assert reached.trouble == "gets no token of Microsoft Entra: no answer within 0.2 s"
    entra.wait.set()
    await until(lambda: len(entra.granted) >= 1)
    await read(await calls.call(chat_request()))


async def test_an_authority_that_is_not_there_is_named(entra: Entra, azure: Azure) -> None:
    reached = await reach(at(entra, azure.url, authority_host="http://127.0.0.1:1"))
    assert reached.trouble.startswith("gets no token of Microsoft Entra: the credentials' endpoint 127.0.0.1")


WRONG = [
    ({"api_key": "k"}, "one of api_key, bearer_token and auth: entra"),
    ({"auth": None}, "authority_host: only with auth: entra"),
    ({"auth": "aad"}, "auth"),
    ({"client_secret": "p+/=&%"}, "client_secret"),
    ({"tenant_id": None}, "client_secret: needs tenant_id and client_id"),
    ({"tenant_id": "a/../b"}, "tenant_id"),
    ({"authority_host": "http://login.example.com"}, "authority_host: must begin with https://"),
    ({"authority_host": "https://login.example.com/tenant"}, "authority_host"),
    ({"token_scope": "https://ai.azure.com"}, "token_scope"),
    ({"kind": "openai"}, "only for kind azure"),
]


@pytest.mark.parametrize(("changes", "problem"), WRONG)
def test_what_cannot_work_is_refused_at_start(changes: dict[str, Any], problem: str) -> None:
    changes = {**changes, "api_key": "env:K"} if changes == {"auth": None} else changes
    with pytest.raises(ValidationError, match=problem):
        at(None, **changes)


def test_a_mistake_is_reported_with_its_line_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "gateway.yaml"
    lines = ["backends:", "  - name: a", "    kind: azure", "    base_url: https://x.openai.azure.com", "    model: m"]
    config.write_text("\n".join([*lines, "    auth: entra", "    client_secret: env:NO_SUCH_SECRET"]))
    with pytest.raises(ConfigError, match=r"gateway\.yaml:7: backends\.0\.client_secret: needs tenant_id"):
        load_settings(config, data_dir=tmp_path)
    config.write_text(config.read_text() + f"\n    tenant_id: {TENANT}\n    client_id: {CLIENT}\n")
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    with pytest.raises(ConfigError, match=r"backends\.0\.client_secret: the environment variable NO_SUCH_SECRET"):
        load_settings(config, data_dir=tmp_path)
    monkeypatch.setenv("NO_SUCH_SECRET", "x")
    settings = load_settings(config, data_dir=tmp_path)
    assert settings.reserved == {"NO_SUCH_SECRET"}
    assert settings.config.backends is not None
    assert settings.config.backends[0].token_scope == f"{RESOURCE}/.default"
