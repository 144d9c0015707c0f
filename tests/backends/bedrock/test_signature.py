"""Signatures against botocore's, over generated requests."""

from __future__ import annotations

import random
import time
from urllib.parse import quote

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as TheirCredentials

from gateway.backends.providers.bedrock.signature import Credentials, signed

CHARACTERS = "abcXYZ019-_.~ /:+%&=?#'\"()*!@$,;[]{}|\\^`<>äöüßé中文字🙂\u2028\t"
REGIONS = ("us-east-1", "eu-central-1", "ap-southeast-2", "us-gov-west-1", "cn-north-1")
ACTIONS = ("invoke", "invoke-with-response-stream", "converse", "converse-stream")
BODIES = ("empty", "short", "unicode", "long", "binary")


def text(dice: random.Random, most: int) -> str:
    return "".join(dice.choice(CHARACTERS) for _ in range(dice.randrange(most)))


def body(dice: random.Random) -> bytes:
    match dice.choice(BODIES):
        case "empty":
            return b""
        case "short":
            return b'{"messages":[]}'
        case "unicode":
            return text(dice, 400).encode()
        case "long":
            return dice.randbytes(64) * dice.randrange(1, 20_000)
    return dice.randbytes(dice.randrange(2000))


def target(dice: random.Random) -> str:
    path = f"/model/{quote(text(dice, 60) or 'm', safe='')}/{dice.choice(ACTIONS)}"
    if dice.random() < 0.3:
        path += dice.choice(("/", "//x", "/../y", "/./z", "/%2F%25"))
    names = [quote(text(dice, 8), safe="") for _ in range(dice.randrange(4) if dice.random() < 0.4 else 0)]
    query = "&".join(f"{name}={quote(text(dice, 12), safe='')}" for name in names if name)
    return f"{path}?{query}" if query else path


def headers(dice: random.Random, host: str) -> list[tuple[bytes, bytes]]:
    found = {"host": host, "content-type": "application/json", "accept": "application/json"}
    if dice.random() < 0.3:
        found["x-amzn-bedrock-accept"] = f"  a  {dice.randrange(9)}   b "
    return [(name.encode(), value.encode()) for name, value in found.items()]


def theirs(
    credentials: Credentials, region: str, method: str, path: str, sent: list[tuple[bytes, bytes]], data: bytes
) -> str:
    """botocore's value of `authorization` for a request with all headers but that one."""
    named = {name.decode(): value.decode() for name, value in sent if name != b"authorization"}
    request = AWSRequest(method, f"https://{named['host']}{path}", headers=named, data=data)
    request.context["timestamp"] = named["x-amz-date"]
    keys = TheirCredentials(credentials.key_id, credentials.secret, credentials.token or None)
    auth = SigV4Auth(keys, "bedrock", region)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    names = auth.signed_headers(auth.headers_to_sign(request))
    return f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders={names}, Signature={signature}"


@pytest.mark.parametrize("seed", range(20))
def test_a_signature_is_botocores(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):  # 2,000 in all
        region = dice.choice(REGIONS)
        credentials = Credentials(
            "AKIA" + str(dice.randrange(10**12)),
            text(dice, 40) or "s",
            dice.choice(("", "FwoGZXIvYXdzE+/=" * dice.randrange(1, 40))),
        )
        path, data, method = target(dice), body(dice), dice.choice(("POST", "POST", "GET"))
        sent = signed(
            method,
            path,
            headers(dice, f"bedrock-runtime.{region}.amazonaws.com"),
            data,
            credentials,
            region=region,
            service="bedrock",
            now=dice.randrange(2 * 10**9),
        )
        assert dict(sent)[b"authorization"].decode() == theirs(credentials, region, method, path, sent, data)


def test_secrets_are_not_shown() -> None:
    shown = repr(Credentials("AKIA1", "the-secret", "the-token", time.time()))
    assert "the-secret" not in shown
    assert "the-token" not in shown
