"""Access tokens of Google: signed by every kind of credential, replaced in time, never shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.backends.providers.renewal import EARLY_S
from gateway.backends.providers.vertex.rsa import PrivateKey
from gateway.backends.providers.vertex.tokens import Token, Tokens
from gateway.errors import BackendFailed
from tests.fakes.google import Google, key_pair


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    return key_pair(tmp_path_factory.mktemp("keys"))


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


@pytest.fixture
async def google(keys: tuple[str, Path]) -> AsyncIterator[Google]:
    async with Google(keys[1]) as server:
        yield server


def account(google: Google, private: str, **changes: Any) -> dict[str, Any]:
    return {
        "type": "service_account",
        "client_email": google.email,
        "private_key_id": "key-1",
        "private_key": private,
        "token_uri": f"{google.url}/token",
        **changes,
    }


def written(folder: Path, value: dict[str, Any]) -> str:
    file = folder / "credentials.json"
    file.write_bytes(orjson.dumps(value))
    return str(file)


async def test_a_service_account_signs_for_its_token(google: Google, keys: tuple[str, Path], tmp_path: Path) -> None:
    file = written(tmp_path, account(google, keys[0]))
    assert (await Tokens("v", file).current()).value == "ya29.token-1"
    assert google.granted == ["jwt-bearer"]


@pytest.mark.parametrize("ahead_s", [-600, 7200])
async def test_a_wrong_clock_is_corrected_by_googles(
    google: Google, keys: tuple[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, ahead_s: float
) -> None:
    google.ahead_s = ahead_s
    file = written(tmp_path, account(google, keys[0]))
    assert (await Tokens("v", file).current()).value == "ya29.token-1"
    assert "clock differs from Google's" in caplog.text


async def test_the_environment_names_the_file(
    google: Google, keys: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", written(tmp_path, account(google, keys[0])))
    assert (await Tokens("v", None).current()).value == "ya29.token-1"


async def test_a_signature_of_another_key_is_refused_and_the_log_has_no_secret(
    google: Google, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    private, _ = await asyncio.to_thread(key_pair, tmp_path)
    with pytest.raises(BackendFailed, match="no token of Google"):
        await Tokens("v", written(tmp_path, account(google, private))).current()
    assert "invalid_grant" in caplog.text
    assert "JWT" not in caplog.text
    assert private.splitlines()[2] not in caplog.text


@pytest.mark.parametrize("bits", [1024, 1536, 2048])
@pytest.mark.parametrize("traditional", [False, True])
def test_signatures_are_openssls(tmp_path: Path, bits: int, traditional: bool) -> None:
    import subprocess

    private, _ = key_pair(tmp_path, bits, traditional=traditional)
    for data in (b"", b"hello", bytes(range(256)) * 40):
        command = ["openssl", "dgst", "-sha256", "-sign", str(tmp_path / "private.pem")]
        theirs = subprocess.run(command, input=data, check=True, capture_output=True).stdout
        assert PrivateKey.of_pem(private).sign(data) == theirs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret-words",
        "-----BEGIN PRIVATE KEY-----\nsecret!words\n-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_key_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="private key") as refused:
        PrivateKey.of_pem(text)
    assert "secret" not in str(refused.value)


async def test_a_users_refresh_token_and_the_metadata_server(google: Google, tmp_path: Path) -> None:
    user = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
    file = written(tmp_path, {**user, "token_uri": f"{google.url}/token"})
    assert (await Tokens("v", file).current()).value == "ya29.token-1"
    assert (await Tokens("v", None, metadata=google.url).current()).value == "ya29.token-2"
    assert google.granted == ["refresh_token", "metadata"]


@pytest.mark.parametrize("source", ["file", "json file", "url"])
@pytest.mark.parametrize("impersonates", [False, True])
async def test_a_workload_identity_exchanges_its_token(
    google: Google, tmp_path: Path, source: str, impersonates: bool
) -> None:
    (tmp_path / "subject").write_text("subject\n" if source == "file" else '{"value":"subject"}')
    found: dict[str, Any] = {"file": str(tmp_path / "subject")}
    if source == "url":
        found = {"url": f"{google.url}/subject", "headers": {"x-for": "us"}}
    if source != "file":
        found["format"] = {"type": "json", "subject_token_field_name": "value"}
    given = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{google.url}/token",
        "credential_source": found,
    }
    if impersonates:
        given["service_account_impersonation_url"] = f"{google.url}/impersonate"
    await Tokens("v", written(tmp_path, given)).current()
    assert google.granted == ["token-exchange", *(["impersonated"] if impersonates else [])]


@pytest.mark.parametrize("given", [{"type": "gdch_service_account"}, {"type": "service_account"}, {}, {"type": 5}])
async def test_other_credentials_are_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(BackendFailed, match="no token of Google"):
        await Tokens("v", written(tmp_path, given)).current()


async def test_a_token_is_asked_for_once_by_many_and_kept(google: Google) -> None:
    tokens = Tokens("v", None, metadata=google.url)
    assert len(set(await asyncio.gather(*[tokens.current() for _ in range(50)]))) == 1
    assert len(google.granted) == 1


async def test_a_token_is_replaced_before_it_ends_and_used_on_while_none_comes(
    google: Google, keys: tuple[str, Path], tmp_path: Path
) -> None:
    google.life_s = int(EARLY_S)
    tokens = Tokens("v", written(tmp_path, account(google, keys[0])))
    first = await tokens.current()
    google.down = True
    await asyncio.sleep(1.05)  # at least a second lies between two looks
    assert await tokens.current() is first
    google.down = False
    assert await tokens.replaced(first)
    assert (await tokens.current()).value == "ya29.token-2"
    assert await tokens.replaced(first), "another one came meanwhile"
    assert len(google.granted) == 2


def test_a_token_is_not_shown() -> None:
    assert "ya29" not in repr(Token("ya29.x", 1.0))
    assert "12345" not in repr(PrivateKey(1, 2, 12345))
