"""Finds AWS credentials where AWS's SDKs look: environment, web identity, shared files, container endpoint, instance
endpoint.

Not supported: `credential_process`, single sign-on, `role_arn` in a profile.
"""

from __future__ import annotations

import asyncio
import configparser
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from gateway.backends.providers.bedrock.signature import Credentials
from gateway.backends.providers.renewal import Headers, Renewed, ask
from gateway.domain.routing.whereabouts import loopback
from gateway.errors import BackendError
from gateway.settings.environment import variables

INSTANCE = "http://169.254.169.254"
"""URL of the metadata endpoint of an EC2 instance, at a fixed link-local address."""
_CONTAINER = "http://169.254.170.2"
_CONTAINERS = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23"})
"""Hosts of container endpoints (ECS, EKS) that may be called without TLS. The loopback addresses of this machine may
also be called without TLS."""
_INSTANCE_PATH = "/latest/meta-data/iam/security-credentials/"
_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path
_WAIT_S = 2.0
"""Maximum seconds to wait for an endpoint."""

_FIELD = re.compile(r"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration)>([^<]+)<")
"""Matches fields of the token service's answer, which is XML. Their values never contain escapes."""

Source = Callable[[], Awaitable[Credentials | None]]


class CredentialChain(Renewed[Credentials]):
    """The current AWS credentials, which are replaced before they expire."""

    def __init__(
        self, backend: str, profile: str | None, *, region: str = "us-east-1", instance: str = INSTANCE
    ) -> None:
        """`region`: the region whose token service is called. `instance`: URL of the instance endpoint."""
        super().__init__(backend, "AWS credentials", "docs/how-to/bedrock.md")
        self._profile, self._instance = profile, instance
        self._tokens = variables("AWS_").get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"

    async def _find(self) -> Credentials | None:
        for source in self._sources():
            if found := await source():
                return found
        return None

    def _sources(self) -> list[Source]:
        if self._profile:
            return [self._file]
        return [self._environment, self._web_identity, self._file, self._container, self._of_instance]

    async def _environment(self) -> Credentials | None:
        given = variables("AWS_")
        if not (key := given.get("AWS_ACCESS_KEY_ID")) or not (secret := given.get("AWS_SECRET_ACCESS_KEY")):
            return None
        return Credentials(key, secret, given.get("AWS_SESSION_TOKEN", ""))

    async def _web_identity(self) -> Credentials | None:
        """The credentials of a role, in exchange for a token in a file. Kubernetes provides the file to pods (IRSA)."""
        given = variables("AWS_")
        file, role = given.get("AWS_WEB_IDENTITY_TOKEN_FILE"), given.get("AWS_ROLE_ARN")
        if not file or not role:
            return None
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": role,
            "RoleSessionName": given.get("AWS_ROLE_SESSION_NAME") or "thriftgate",
            "WebIdentityToken": (await asyncio.to_thread(Path(file).read_text, encoding="utf-8")).strip(),
        }
        headers = [(b"content-type", b"application/x-www-form-urlencoded")]
        answer = await _ask("POST", self._tokens + "/", headers, urlencode(form).encode())
        named = dict(_FIELD.findall(answer.decode()))
        ends = datetime.fromisoformat(named["Expiration"]).timestamp()
        return Credentials(named["AccessKeyId"], named["SecretAccessKey"], named["SessionToken"], ends)

    async def _file(self) -> Credentials | None:
        return await asyncio.to_thread(_of_files, self._profile)

    async def _container(self) -> Credentials | None:
        given = variables("AWS_")
        if relative := given.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
            url = _CONTAINER + relative
        elif url := given.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", ""):
            _check_container(url)
        else:
            return None
        token = given.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        if file := given.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            token = (await asyncio.to_thread(Path(file).read_text, encoding="utf-8")).strip()
        return _temporary(await _ask("GET", url, [(b"authorization", token.encode())] if token else []))

    async def _of_instance(self) -> Credentials | None:
        if variables("AWS_").get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            return None
        life = (b"x-aws-ec2-metadata-token-ttl-seconds", b"21600")
        try:
            token = await _ask("PUT", self._instance + _TOKEN_PATH, [life])
        except BackendError:
            return None  # this machine is not an EC2 instance
        headers = [(b"x-aws-ec2-metadata-token", token)]
        roles = self._instance + _INSTANCE_PATH
        role = (await _ask("GET", roles, headers)).split()[0].decode("ascii")
        return _temporary(await _ask("GET", roles + role, headers))


def _check_container(url: str) -> None:
    """Check the URL of a container endpoint. Raises ValueError for an address to which AWS's SDKs would not send a
    token."""
    at = urlsplit(url)
    if at.scheme != "https" and at.hostname not in _CONTAINERS and not loopback(url):
        raise ValueError(f"AWS_CONTAINER_CREDENTIALS_FULL_URI names {at.hostname}; without https only this machine may")


async def _ask(method: str, url: str, headers: Headers, body: bytes = b"") -> bytes:
    return await ask(method, url, headers, body, wait_s=_WAIT_S)


def _temporary(body: bytes) -> Credentials:
    """Parse credentials in the format of the endpoints. Raises LookupError, TypeError, ValueError."""
    read = orjson.loads(body)
    expires = datetime.fromisoformat(read["Expiration"]).timestamp() if read.get("Expiration") else None
    return Credentials(str(read["AccessKeyId"]), str(read["SecretAccessKey"]), str(read.get("Token") or ""), expires)


def _of_files(profile: str | None) -> Credentials | None:
    """The keys of a profile in `~/.aws/credentials` or `~/.aws/config`; None if it has none. `profile`: its name; None:
    the default of AWS's SDKs."""
    given = variables("AWS_")
    name = profile or given.get("AWS_PROFILE") or given.get("AWS_DEFAULT_PROFILE") or "default"
    home = Path(variables("HOME").get("HOME", "/")) / ".aws"
    credentials = Path(given.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials"))
    config = Path(given.get("AWS_CONFIG_FILE", home / "config"))
    for file, section in ((credentials, name), (config, name if name == "default" else f"profile {name}")):
        if found := _keys(_sections(file).get(section, {})):
            return found
    return None


def _sections(file: Path) -> Mapping[str, Mapping[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text(encoding="utf-8"), source=str(file))
    except FileNotFoundError:
        return {}
    except configparser.Error as error:  # the error's text contains the line of the file, which may be a secret
        raise ValueError(f"{file} is not in the format of AWS's files ({type(error).__name__})") from None
    return {section: dict(parser[section]) for section in parser.sections()}


def _keys(section: Mapping[str, Any]) -> Credentials | None:
    key, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    return Credentials(key, secret, section.get("aws_session_token", "")) if key and secret else None
