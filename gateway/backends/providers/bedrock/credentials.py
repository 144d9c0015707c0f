"""Finds AWS credentials where AWS's SDKs look: environment, web identity, shared files, container endpoint, instance
endpoint.

Not supported: single sign-on, and roles that need a code of a person (`mfa_serial`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import orjson

from gateway.backends.http.wire import Origin
from gateway.backends.providers.bedrock.profiles import (
    Profile,
    check_supported,
    chosen,
    keys_of,
    of_program,
    read_profile,
)
from gateway.backends.providers.bedrock.signature import Credentials, signed
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

_FORM = (b"content-type", b"application/x-www-form-urlencoded")

Source = Callable[[], Awaitable[Credentials | None]]


class CredentialChain(Renewed[Credentials]):
    """The current AWS credentials, which are replaced before they expire."""

    def __init__(
        self, backend: str, profile: str | None, *, region: str = "us-east-1", instance: str = INSTANCE
    ) -> None:
        """`region`: the region whose token service is called. `instance`: URL of the instance endpoint."""
        super().__init__(backend, "AWS credentials", "docs/how-to/bedrock.md")
        self._profile, self._instance, self._region = profile, instance, region
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
        return await self._by_identity(role, file, given.get("AWS_ROLE_SESSION_NAME"))

    async def _by_identity(self, role: str, file: str, session: str | None) -> Credentials:
        identity = (await asyncio.to_thread(Path(file).read_text, encoding="utf-8")).strip()
        form = _role_form("AssumeRoleWithWebIdentity", role, session) | {"WebIdentityToken": identity}
        return _assumed(await _ask("POST", self._tokens + "/", [_FORM], urlencode(form).encode()))

    async def _file(self) -> Credentials | None:
        return await self._of_profile(chosen(self._profile), ())

    async def _of_profile(self, name: str, before: tuple[str, ...]) -> Credentials | None:
        """The credentials of a profile; None if the profile has no credentials. `before`: names of the profiles that
        led to this one, because each names the next as the source of its role."""
        profile = await asyncio.to_thread(read_profile, name)
        if (role := profile.get("role_arn")) and name not in before:
            return await self._of_role(name, role, profile, (*before, name))
        if found := keys_of(profile):
            return found
        if command := profile.get("credential_process"):
            return await of_program(command)
        check_supported(name, profile)
        return None

    async def _of_role(self, name: str, role: str, profile: Profile, before: tuple[str, ...]) -> Credentials:
        if profile.get("mfa_serial"):
            raise ValueError(f"profile {name} has mfa_serial: the role needs a code of a person")
        session = profile.get("role_session_name")
        if file := profile.get("web_identity_token_file"):
            return await self._by_identity(role, file, session)
        if source := profile.get("source_profile"):
            if source in before[:-1]:
                raise ValueError(f"profile {name} has source_profile {source}, whose role needs this profile")
            base = await self._of_profile(source, before)
        else:
            base = await self._of_source(name, profile.get("credential_source", ""))
        if base is None:
            raise ValueError(f"profile {name} has role_arn, but no credentials to assume the role with")
        form = _role_form("AssumeRole", role, session)
        for key, field in (("external_id", "ExternalId"), ("duration_seconds", "DurationSeconds")):
            if profile.get(key):
                form[field] = profile[key]
        return await self._assume(form, base)

    async def _of_source(self, name: str, source: str) -> Credentials | None:
        match source:
            case "Environment":
                return await self._environment()
            case "EcsContainer":
                return await self._container()
            case "Ec2InstanceMetadata":
                return await self._of_instance()
        raise ValueError(f"profile {name} has role_arn without source_profile, credential_source or token file")

    async def _assume(self, form: dict[str, str], base: Credentials) -> Credentials:
        """The credentials of a role, from a request to AWS's token service. `base`: the keys that sign the request."""
        body, origin = urlencode(form).encode(), Origin.parse(self._tokens)
        headers = signed(
            "POST",
            "/",
            [(b"host", origin.authority), _FORM],
            body,
            base,
            region=self._region,
            service="sts",
            now=time.time(),
        )
        return _assumed(await _ask("POST", self._tokens + "/", headers[1:], body))

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


def _role_form(action: str, role: str, session: str | None) -> dict[str, str]:
    return {"Action": action, "Version": "2011-06-15", "RoleArn": role, "RoleSessionName": session or "thriftgate"}


def _assumed(answer: bytes) -> Credentials:
    """The credentials in an answer of the token service. Raises LookupError, ValueError."""
    named = dict(_FIELD.findall(answer.decode()))
    ends = datetime.fromisoformat(named["Expiration"]).timestamp()
    return Credentials(named["AccessKeyId"], named["SecretAccessKey"], named["SessionToken"], ends)


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
