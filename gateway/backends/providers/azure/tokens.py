"""Access tokens of Microsoft Entra ID, for an application with a client secret, a workload identity, or the managed
identity of a machine in Azure."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit

import orjson

from gateway.backends.providers.renewal import Headers, Renewed, Token, ask
from gateway.domain.backend import Backend
from gateway.domain.routing.whereabouts import loopback
from gateway.errors import BackendFailed
from gateway.settings.environment import secret, variable

IMDS = "http://169.254.169.254"
"""URL of the metadata endpoint of a machine in Azure, at a fixed link-local address."""
_IMDS_PATH = "/metadata/identity/oauth2/token"
AUTHORITY = "https://login.microsoftonline.com"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_WAIT_S = 10.0
_FORM: Headers = [(b"content-type", b"application/x-www-form-urlencoded")]
_REMEDIES = {
    "AADSTS7000215": "client_secret is wrong; give the secret's value, not its id",
    "AADSTS7000222": "client_secret has expired; make a new one",
    "AADSTS700016": "client_id is unknown in this tenant; check client_id and tenant_id",
    "AADSTS90002": "tenant_id is unknown; check tenant_id and authority_host",
    "AADSTS700024": "the federated token has expired; check the program that writes AZURE_FEDERATED_TOKEN_FILE",
    "AADSTS70021": "no federated credential matches the token's issuer, subject and audience; check the credential",
    "AADSTS700211": "no federated credential matches the token's issuer; check the credential",
    "AADSTS700213": "no federated credential matches the token's subject; check the credential",
    "AADSTS500011": "token_scope is unknown in this tenant; check token_scope",
}
"""Number of Entra's error → cause and remedy."""
_NUMBER = re.compile(r"AADSTS\d+")


class EntraTokens(Renewed[Token]):
    """The current access token, which is replaced before it expires.

    The token comes from the first of these sources that exists: the configured `client_secret`; AZURE_CLIENT_SECRET, if
    it belongs to this application; the token in AZURE_FEDERATED_TOKEN_FILE; the managed identity.
    """

    tries_expired: ClassVar[bool] = False

    def __init__(self, backend: Backend, *, imds: str = IMDS) -> None:
        """`imds`: URL of the metadata endpoint."""
        super().__init__(backend.name, "token of Microsoft Entra", "docs/how-to/azure-openai.md")
        self._configured, self._imds = backend, imds

    async def _find(self) -> Token:
        asked_at = time.time()
        try:
            answer = await self._answer()
        except BackendFailed as error:
            number = _NUMBER.search(error.message)
            if number is None or number[0] not in _REMEDIES:
                raise
            raise BackendFailed(f"{error.message}; {_REMEDIES[number[0]]}") from error
        return read_token(answer, asked_at)

    async def _answer(self) -> bytes:
        configured = self._configured
        if configured.client_secret is not None:
            place = f"backends.{configured.name}.client_secret"
            given = await asyncio.to_thread(secret, configured.client_secret, place)
            return await self._by_form({"client_secret": given})
        named = variable("AZURE_CLIENT_ID")
        if (given := variable("AZURE_CLIENT_SECRET")) and configured.client_id in (None, named or configured.client_id):
            return await self._by_form({"client_secret": given})
        if file := variable("AZURE_FEDERATED_TOKEN_FILE"):
            token = await asyncio.to_thread(Path(file).read_text, encoding="ascii")
            return await self._by_form({"client_assertion_type": _ASSERTION, "client_assertion": token.strip()})
        return await self._managed()

    async def _by_form(self, proof: dict[str, str]) -> bytes:
        """Request a token for the application. `proof`: the fields that authenticate the application."""
        configured = self._configured
        tenant = configured.tenant_id or variable("AZURE_TENANT_ID")
        client = configured.client_id or variable("AZURE_CLIENT_ID")
        if not tenant or not client:
            raise ValueError("tenant_id and client_id are missing; set both, or AZURE_TENANT_ID and AZURE_CLIENT_ID")
        host = authority(configured.authority_host or variable("AZURE_AUTHORITY_HOST") or AUTHORITY)
        form = {"grant_type": "client_credentials", "client_id": client, "scope": configured.token_scope, **proof}
        url = f"{host}/{quote(tenant, safe='')}/oauth2/v2.0/token"
        return await ask("POST", url, _FORM, urlencode(form).encode(), wait_s=_WAIT_S)

    async def _managed(self) -> bytes:
        """Request a token of the managed identity. The token comes from App Service or Container Apps or, outside of
        both, from the machine's metadata endpoint."""
        resource = {"resource": self._configured.token_scope.removesuffix("/.default")}
        if client := self._configured.client_id or variable("AZURE_CLIENT_ID"):
            resource["client_id"] = client
        if (endpoint := variable("IDENTITY_ENDPOINT")) and (header := variable("IDENTITY_HEADER")):
            _check_endpoint(endpoint)
            query = urlencode({"api-version": "2019-08-01", **resource})
            headers = [(b"x-identity-header", header.encode())]
            return await ask("GET", f"{endpoint}?{query}", headers, wait_s=_WAIT_S)
        query = urlencode({"api-version": "2018-02-01", **resource})
        return await ask("GET", f"{self._imds}{_IMDS_PATH}?{query}", [(b"metadata", b"true")], wait_s=_WAIT_S)


def authority(host: str) -> str:
    """The address of an authority, without a final slash. Raises ValueError for an address to which no secret may be
    sent: plain HTTP to another machine, or an address with a path, query or user."""
    at = urlsplit(host)
    plain = at.scheme == "http" and loopback(host)
    if (at.scheme != "https" and not plain) or not at.hostname or at.path.strip("/") or at.query or "@" in at.netloc:
        raise ValueError("authority_host must be an address such as https://login.microsoftonline.com")
    return f"{at.scheme}://{at.netloc}"


def _check_endpoint(url: str) -> None:
    """Check IDENTITY_ENDPOINT. Raises ValueError for an address to which Azure's SDKs would not send the secret
    (IDENTITY_HEADER)."""
    at = urlsplit(url)
    if at.scheme != "https" and not loopback(url) and not (at.hostname or "").startswith("169.254."):
        raise ValueError(f"IDENTITY_ENDPOINT names {at.hostname}; without https only this machine may be called")


def read_token(answer: bytes, asked_at: float) -> Token:
    """Parse the answer to a token request. Numbers in the answer may be written as text. `asked_at`: Unix seconds at
    which the request was sent. Raises LookupError, TypeError, ValueError."""
    read: Any = orjson.loads(answer)
    value = read.get("access_token") if type(read) is dict else None
    if type(value) is not str or not value.isascii() or not value.isprintable() or not value:
        raise ValueError("the answer has no usable access_token")
    if (life := read.get("expires_in")) is not None:
        return Token(value, asked_at + int(life))
    # App Service names only the time of expiry. If it has passed, a clock is wrong, so the time is unknown.
    if "expires_on" not in read:
        raise ValueError("the answer has no time of expiry")
    expires_at = float(read["expires_on"])
    return Token(value, expires_at if expires_at > asked_at else None)
