"""Where AWS credentials are found, when they are replaced, and what happens while they cannot be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from gateway.backends.providers.bedrock.credentials import CredentialChain
from gateway.backends.providers.bedrock.signature import Credentials
from gateway.backends.providers.renewal import EARLY_S
from gateway.errors import BackendFailed
from tests.support.http_server import HttpServer


@dataclass
class Endpoint(HttpServer):
    """The container's and the instance's endpoint. `life_s`: for which its keys are valid."""

    life_s: float = 3600.0
    asked: list[str] = field(default_factory=list)
    down: bool = False

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path_qs}")
        if self.down:
            return web.Response(status=500)
        if request.path == "/":
            return web.Response(text=self._assumed(dict(await request.post())), content_type="text/xml")
        if request.path == "/latest/api/token":
            assert request.headers["x-aws-ec2-metadata-token-ttl-seconds"] == "21600"
            return web.Response(text="imds-token")
        if request.path.startswith("/latest/meta-data"):
            if request.headers.get("x-aws-ec2-metadata-token") != "imds-token":
                return web.Response(status=401)
            if request.path.endswith("/security-credentials/"):
                return web.Response(text="our-role\n")
        elif request.headers.get("authorization") != "container-token":
            return web.Response(status=401)
        ends = datetime.fromtimestamp(time.time() + self.life_s, UTC).isoformat().replace("+00:00", "Z")
        keys = {"AccessKeyId": f"ASIA{len(self.asked)}", "SecretAccessKey": "s", "Token": "t", "Expiration": ends}
        return web.json_response(keys)

    def _assumed(self, form: dict[str, Any]) -> str:
        """As AWS documents AssumeRoleWithWebIdentity."""
        assert form == {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": "arn:aws:iam::1:role/gateway",
            "RoleSessionName": "thriftgate",
            "WebIdentityToken": "ey.identity",
        }
        keys = "<AccessKeyId>ASIAWEB</AccessKeyId><SecretAccessKey>a+/b=</SecretAccessKey>"
        ends = datetime.fromtimestamp(time.time() + self.life_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        token = f"<SessionToken>web+token=</SessionToken><Expiration>{ends}</Expiration>"
        return f"<R><Result><Credentials>\n{keys}\n{token}</Credentials></Result></R>"


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def chain(endpoint: Endpoint | None = None, profile: str | None = None) -> CredentialChain:
    return CredentialChain("aws", profile, instance=endpoint.url if endpoint else "http://127.0.0.1:1")


def written(home: Path, name: str, text: str) -> Path:
    (home / ".aws").mkdir(exist_ok=True)
    file = home / ".aws" / name
    file.write_text(text)
    return file


async def test_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written(tmp_path, "credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = f\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "e")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    assert await chain().current() == Credentials("ENV", "e", "t")
    assert (await chain(profile="default").current()).key_id == "FILE", "a profile is what the operator chose"


@pytest.mark.parametrize("how", ["key", "environment"])
async def test_a_profile_is_found_in_both_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str) -> None:
    keys = "aws_access_key_id = {}\naws_secret_access_key = s%1\naws_session_token = t\n"
    written(tmp_path, "credentials", "[default]\n" + keys.format("D") + "[one]\n" + keys.format("ONE"))
    written(tmp_path, "config", "[profile two]\nregion = x\n" + keys.format("TWO"))
    for name, key in (("one", "ONE"), ("two", "TWO")):
        if how == "environment":
            monkeypatch.setenv("AWS_PROFILE", name)
        assert await chain(profile=name if how == "key" else None).current() == Credentials(key, "s%1", "t")
    with pytest.raises(BackendFailed, match="no AWS credentials"):
        await chain(profile="three").current()


async def test_a_broken_file_is_reported_without_its_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, "credentials", "the-secret-without-a-section\n")
    with pytest.raises(BackendFailed):
        await chain(profile="default").current()
    assert "is not in the format of AWS's files" in caplog.text
    assert "the-secret" not in caplog.text


async def test_a_service_account_of_kubernetes_takes_its_role(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "identity").write_text("ey.identity\n")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/gateway")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint.url)
    credentials = chain()
    found = await credentials.current()
    assert (found.key_id, found.secret, found.token, endpoint.asked) == ("ASIAWEB", "a+/b=", "web+token=", ["POST /"])
    assert found.expires_at is not None
    assert 3590 < found.expires_at - time.time() <= 3600
    assert await credentials.current() is found


@pytest.mark.parametrize("token", ["text", "file"])
async def test_the_containers_endpoint_gets_its_token(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: str
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoint.url}/v2/keys?id=1")
    if token == "text":
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-token")
    else:
        (tmp_path / "token").write_text("container-token\n")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    found = await chain().current()
    assert (found.key_id, found.token, endpoint.asked) == ("ASIA1", "t", ["GET /v2/keys?id=1"])


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.1/keys", "http://metadata.example.com/keys", "http://169.254.169.254/x", "http://[fe80::1]/x"],
)
async def test_no_token_goes_to_an_address_that_is_no_containers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-token")
    with pytest.raises(BackendFailed):
        await chain().current()
    assert "only this machine may" in caplog.text


async def test_an_instance_gives_the_keys_of_its_role(endpoint: Endpoint) -> None:
    found = await chain(endpoint).current()
    assert (found.key_id, found.secret, found.token) == ("ASIA3", "s", "t")
    assert endpoint.asked == [
        "PUT /latest/api/token",
        "GET /latest/meta-data/iam/security-credentials/",
        "GET /latest/meta-data/iam/security-credentials/our-role",
    ]


async def test_an_instance_is_not_asked_where_that_is_switched_off(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(BackendFailed):
        await chain(endpoint).current()
    assert endpoint.asked == []


async def test_keys_are_asked_for_once_by_many_and_kept(endpoint: Endpoint) -> None:
    credentials = chain(endpoint)
    found = await asyncio.gather(*[credentials.current() for _ in range(50)])
    assert len(set(found)) == 1
    assert len(endpoint.asked) == 3


async def test_keys_are_replaced_before_they_end_and_used_on_while_none_come(endpoint: Endpoint) -> None:
    credentials = chain(endpoint)
    endpoint.life_s = EARLY_S - 1
    first = await credentials.current()
    endpoint.down = True
    await asyncio.sleep(1.05)  # at least a second lies between two looks
    assert await credentials.current() == first
    endpoint.down, endpoint.life_s = False, 3600.0
    assert await credentials.replaced(first)
    assert (await credentials.current()) != first


async def test_refused_keys_are_looked_for_once_and_not_again_after_others_came(endpoint: Endpoint) -> None:
    credentials = chain(endpoint)
    first = await credentials.current()
    assert all(await asyncio.gather(*[credentials.replaced(first) for _ in range(20)]))
    assert len(endpoint.asked) == 6


@dataclass
class TokenService(HttpServer):
    """AWS's token service for AssumeRole: checks each signature with botocore."""

    forms: list[dict[str, Any]] = field(default_factory=list)

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/", self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        authorization = request.headers["authorization"]
        key_id = authorization.partition("Credential=")[2].partition("/")[0]
        names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        headers = {name: request.headers[name] for name in names}
        asked = AWSRequest("POST", f"http://{request.host}/", headers=headers, data=body)
        asked.context["timestamp"] = request.headers["x-amz-date"]
        token = request.headers.get("x-amz-security-token")
        auth = SigV4Auth(BotoCredentials(key_id, "s", token), "sts", "us-east-1")
        signature = auth.signature(auth.string_to_sign(asked, auth.canonical_request(asked)), asked)
        assert authorization.endswith(f"Signature={signature}")
        self.forms.append({"key": key_id, **dict(parse_qsl(body.decode()))})
        ends = datetime.fromtimestamp(time.time() + 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = f"<AccessKeyId>ROLE{len(self.forms)}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
        return web.Response(text=f"<C>{keys}<SessionToken>t</SessionToken><Expiration>{ends}</Expiration></C>")


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TokenService]:
    async with TokenService() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        yield server


KEYS = "aws_access_key_id = {}\naws_secret_access_key = s\n"


async def test_a_profile_assumes_roles_one_after_the_other(service: TokenService, tmp_path: Path) -> None:
    written(tmp_path, "credentials", "[base]\n" + KEYS.format("BASE"))
    inner = "[profile inner]\nrole_arn = arn:inner\nsource_profile = base\n"
    outer = "[profile outer]\nrole_arn = arn:outer\nsource_profile = inner\nexternal_id = x\nrole_session_name = n\n"
    written(tmp_path, "config", inner + outer)
    found = await chain(profile="outer").current()
    assert (found.key_id, found.token) == ("ROLE2", "t")
    assert found.expires_at is not None
    common = {"Action": "AssumeRole", "Version": "2011-06-15"}
    assert service.forms == [
        {"key": "BASE", **common, "RoleArn": "arn:inner", "RoleSessionName": "thriftgate"},
        {"key": "ROLE1", **common, "RoleArn": "arn:outer", "RoleSessionName": "n", "ExternalId": "x"},
    ]


async def test_a_role_takes_keys_of_its_own_profile_and_of_the_environment(
    service: TokenService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "[profile own]\nrole_arn = r\nsource_profile = own\n" + KEYS.format("OWN")
    written(tmp_path, "config", own + "[profile env]\nrole_arn = r\ncredential_source = Environment\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    for name in ("own", "env"):
        await chain(profile=name).current()
    assert [form["key"] for form in service.forms] == ["OWN", "ENV"]


async def test_a_program_prints_credentials(tmp_path: Path) -> None:
    printed = '{"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "s", "SessionToken": "t"}'
    (tmp_path / "keys.json").write_text(printed)
    written(tmp_path, "config", f"[profile p]\ncredential_process = cat '{tmp_path}/keys.json'\n")
    assert await chain(profile="p").current() == Credentials("P", "s", "t")


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("sso_session = s", "sso_session"),
        ("role_arn = r\nsource_profile = base\nmfa_serial = m", "mfa_serial"),
        ("role_arn = r", "role_arn"),
        ("role_arn = r\nsource_profile = back", "back"),
        ("credential_process = false", "credential_process"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lines: str, named: str
) -> None:
    back = "[profile back]\nrole_arn = r\nsource_profile = p\n"
    written(tmp_path, "config", f"[profile p]\n{lines}\n{back}")
    with pytest.raises(BackendFailed):
        await chain(profile="p").current()
    assert named in caplog.text
