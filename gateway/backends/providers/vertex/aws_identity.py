"""Proves an AWS identity to Google: signs a request to AWS's `GetCallerIdentity`, which Google then sends.

https://google.aip.dev/auth/4117
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import orjson

from gateway.backends.http.wire import Origin
from gateway.backends.providers.bedrock.credentials import CredentialChain
from gateway.backends.providers.bedrock.signature import Credentials, signed
from gateway.settings.environment import variables

_TARGET = "x-goog-cloud-target-resource"


async def subject_token(given: dict[str, Any], backend: str) -> str:
    """The proof of the AWS identity, which Google exchanges for a Google access token. `given`: contents of the
    credentials file. Raises ValueError if the region is unknown, and BackendFailed if there are no AWS credentials."""
    environment = variables("AWS_")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if not region:
        raise ValueError("a workload identity of AWS needs the region of this machine in AWS_REGION")
    chain = CredentialChain(backend, None, region=region)
    try:
        credentials = await chain.current()
    finally:
        await chain.aclose()
    url = given["credential_source"]["regional_cred_verification_url"].replace("{region}", region)
    return signed_request(url, given["audience"], credentials, region, time.time())


def signed_request(url: str, audience: str, credentials: Credentials, region: str, now: float) -> str:
    """The request to `url` as Google expects it: JSON in percent-encoding. `now`: Unix seconds."""
    base, _, query = url.partition("?")
    host = Origin.parse(base).authority
    target = f"/?{query}"
    headers = signed("POST", target, [(b"host", host)], b"", credentials, region=region, service="sts", now=now)
    every = [{"key": name.decode(), "value": value.decode()} for name, value in headers]
    request = {"headers": [*every, {"key": _TARGET, "value": audience}], "method": "POST", "url": url}
    return quote(orjson.dumps(request).decode())
