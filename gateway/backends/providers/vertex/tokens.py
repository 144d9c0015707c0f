"""Google access tokens for service accounts, users, federated identities, and machines in Google's cloud."""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson

from gateway.backends.providers.renewal import CredentialRefused, Headers, Renewed, Token, ask
from gateway.backends.providers.vertex.aws_identity import subject_token
from gateway.backends.providers.vertex.rsa import PrivateKey
from gateway.settings.environment import variable

log = logging.getLogger(__name__)

METADATA = "http://169.254.169.254"
"""URL of the metadata server of a machine in Google's cloud, at a fixed link-local address."""
_METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS = "urn:ietf:params:oauth:token-type:access_token"
_LIFE_S = 3600
_SKEW_S = 30.0
"""A difference between Google's clock and this machine's clock is ignored up to this number of seconds."""
_WAIT_S = 10.0


class Tokens(Renewed[Token]):
    """The current access token, which is replaced before it expires."""

    def __init__(self, backend: str, file: str | None, *, metadata: str = METADATA) -> None:
        """`file`: path of the credentials; None: the path is taken from an environment variable. `metadata`: URL of the
        metadata server."""
        super().__init__(backend, "token of Google", "docs/how-to/vertex.md")
        self._path, self._metadata = file, metadata

    async def _find(self) -> Token:
        path = self._path or variable("GOOGLE_APPLICATION_CREDENTIALS")
        if not path:
            return _token(await _ask("GET", self._metadata + _METADATA_PATH, [(b"metadata-flavor", b"Google")]))
        given: dict[str, Any] = orjson.loads(await asyncio.to_thread(Path(path).read_bytes))
        return await self._of(given, path)

    async def _of(self, given: dict[str, Any], path: str) -> Token:
        """An access token for `given`, the contents of the credentials file at `path`."""
        match given.get("type"):
            case "service_account":
                return await _of_service_account(given)
            case "authorized_user":
                names = ("client_id", "client_secret", "refresh_token")
                form = {"grant_type": "refresh_token", **{name: given[name] for name in names}}
                return _token(await _post(given.get("token_uri", _TOKEN_URL), form))
            case "external_account":
                return await _federated(given, self._backend)
            case "impersonated_service_account":
                source = await self._of(given["source_credentials"], path)
                return await _acting(given, source)
        raise ValueError(f"{path} is of type {given.get('type')}, which is not supported")


async def _of_service_account(given: dict[str, Any]) -> Token:
    """Exchange an assertion (a signed token) for an access token. `given`: contents of the credentials file.

    If Google refuses the assertion, and this machine's clock differs from Google's, sign another assertion with
    Google's time.
    """
    url = given.get("token_uri", _TOKEN_URL)

    async def exchanged(now: float) -> Token:
        return _token(await _post(url, {"grant_type": _ASSERTION, "assertion": assertion(given, now)}))

    try:
        return await exchanged(time.time())
    except CredentialRefused as refused:
        theirs = refused.answered_at
        if theirs is None or abs(theirs - time.time()) <= _SKEW_S:
            raise
        log.warning("this machine's clock differs from Google's by %d s; assertions use Google's", theirs - time.time())
        return await exchanged(theirs)


def assertion(account: dict[str, Any], now: float) -> str:
    """The signed token that a service account exchanges for an access token. Raises LookupError, ValueError."""
    head = {"alg": "RS256", "typ": "JWT", "kid": account.get("private_key_id", "")}
    issued = int(now)
    claims = {
        "iss": account["client_email"],
        "scope": _SCOPE,
        "aud": account.get("token_uri", _TOKEN_URL),
        "iat": issued,
        "exp": issued + _LIFE_S,
    }
    signed = b".".join(_base64(orjson.dumps(part)) for part in (head, claims))
    signature = PrivateKey.of_pem(account["private_key"]).sign(signed)
    return (signed + b"." + _base64(signature)).decode("ascii")


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


_CANNOT = {"executable": "a program", "certificate": "a certificate"}
"""Key of a `credential_source` that is not supported → its meaning."""


async def _federated(given: dict[str, Any], backend: str) -> Token:
    """Exchange another provider's token for a Google access token (workload identity federation). `given`: contents of
    the credentials file.

    If the file names a service account, the access token is for this account.
    """
    source = given["credential_source"]
    if key := next((key for key in _CANNOT if key in source), None):
        raise ValueError(f"credential_source.{key} ({_CANNOT[key]}) is not supported: use a file, a url, or AWS")
    if str(source.get("environment_id", "")).startswith("aws"):
        return await _exchanged(given, await subject_token(given, backend))
    if "file" in source:
        subject = await asyncio.to_thread(Path(source["file"]).read_bytes)
    elif "url" in source:
        headers = [(name.encode(), value.encode()) for name, value in (source.get("headers") or {}).items()]
        subject = await _ask("GET", source["url"], headers)
    else:
        raise ValueError("a workload identity must be in a file, behind a url, or of AWS")
    form = source.get("format") or {}
    text = orjson.loads(subject)[form["subject_token_field_name"]] if form.get("type") == "json" else subject.decode()
    return await _exchanged(given, text.strip())


async def _exchanged(given: dict[str, Any], subject: str) -> Token:
    exchanged = {
        "grant_type": _EXCHANGE,
        "audience": given["audience"],
        "scope": _SCOPE,
        "requested_token_type": _ACCESS,
        "subject_token_type": given["subject_token_type"],
        "subject_token": subject,
    }
    token = _token(await _post(given["token_url"], exchanged))
    return await _acting(given, token) if given.get("service_account_impersonation_url") else token


async def _acting(given: dict[str, Any], token: Token) -> Token:
    """A token for the service account that `given` names. `token`: the token of the identity that may impersonate
    the account.
    """
    url = given["service_account_impersonation_url"]
    headers = [(b"authorization", b"Bearer " + token.value.encode()), (b"content-type", b"application/json")]
    chain = {"delegates": given["delegates"]} if given.get("delegates") else {}
    body = orjson.dumps({"scope": [_SCOPE], "lifetime": f"{_LIFE_S}s", **chain})
    acting = orjson.loads(await _ask("POST", url, headers, body))
    return Token(acting["accessToken"], time.time() + _LIFE_S)


async def _ask(method: str, url: str, headers: Headers, body: bytes = b"") -> bytes:
    return await ask(method, url, headers, body, wait_s=_WAIT_S)


async def _post(url: str, form: dict[str, str]) -> bytes:
    return await _ask("POST", url, [(b"content-type", b"application/x-www-form-urlencoded")], urlencode(form).encode())


def _token(answer: bytes, clock: Callable[[], float] = time.time) -> Token:
    read = orjson.loads(answer)
    return Token(str(read["access_token"]), clock() + int(read.get("expires_in") or _LIFE_S))
