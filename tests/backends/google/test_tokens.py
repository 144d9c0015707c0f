"""Access tokens of Google: signed by every kind of credential, replaced in time, never shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from gateway.backends.providers.bedrock.signature import Credentials
from gateway.backends.providers.renewal import EARLY_S
from gateway.backends.providers.vertex.aws_identity import signed_request
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


AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"
VERIFIED = "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"


def from_aws(google: Google, **source: Any) -> dict[str, Any]:
    found = source or {"environment_id": "aws1", "regional_cred_verification_url": VERIFIED}
    kind = "urn:ietf:params:aws:token-type:aws4_request"
    given = {"type": "external_account", "audience": AUDIENCE, "subject_token_type": kind}
    return {**given, "token_url": f"{google.url}/token", "credential_source": found}


@pytest.mark.parametrize("session", ["", "t/k="])
def test_an_aws_identity_is_proven_by_a_request_that_botocore_would_sign(session: str) -> None:
    url = VERIFIED.replace("{region}", "eu-west-1")
    token = signed_request(url, AUDIENCE, Credentials("AKIA", "s", session), "eu-west-1", 1_700_000_000.0)
    read = orjson.loads(unquote(token))
    headers = {each["key"]: each["value"] for each in read["headers"]}
    assert (read["url"], read["method"], headers["x-goog-cloud-target-resource"]) == (url, "POST", AUDIENCE)
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    asked = AWSRequest("POST", url, headers={name: headers[name] for name in names}, data=b"")
    asked.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(BotoCredentials("AKIA", "s", session or None), "sts", "eu-west-1")
    signature = auth.signature(auth.string_to_sign(asked, auth.canonical_request(asked)), asked)
    assert headers["authorization"].endswith(f"Signature={signature}")
    assert headers.get("x-amz-security-token", "") == session


async def test_an_aws_identity_is_exchanged(google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_REGION", "eu-west-1")):
        monkeypatch.setenv(name, value)
    await Tokens("v", written(tmp_path, from_aws(google))).current()
    assert google.granted == ["token-exchange"]


async def test_a_user_acts_for_a_service_account(google: Google, tmp_path: Path) -> None:
    user = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
    source = {**user, "token_uri": f"{google.url}/token"}
    given = {"service_account_impersonation_url": f"{google.url}/impersonate", "source_credentials": source}
    await Tokens("v", written(tmp_path, {"type": "impersonated_service_account", **given})).current()
    assert google.granted == ["refresh_token", "impersonated"]


@pytest.mark.parametrize("key", ["executable", "certificate"])
async def test_a_source_that_is_not_supported_is_named(
    google: Google, tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    with pytest.raises(BackendFailed):
        await Tokens("v", written(tmp_path, from_aws(google, **{key: {}}))).current()
    assert f"credential_source.{key}" in caplog.text
