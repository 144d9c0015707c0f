"""A webhook is posted to as the operator says, signed as Standard Webhooks has it, and never led elsewhere."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator

import orjson
import pytest
import pytest_asyncio
from aiohttp import web

from gateway.alerts.delivery.webhooks import signature
from tests.alerts.samples import Receiver, make_receivers

KEY = b"0123456789abcdef0123456789abcdef"


@pytest_asyncio.fixture
async def strict() -> AsyncIterator[tuple[str, list[bool]]]:
    """A receiver that verifies as the standard tells receivers to; its URL and what it found."""
    verified: list[bool] = []

    async def hook(request: web.Request) -> web.Response:
        body = await request.read()
        id, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        mac = hmac.new(KEY, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
        versions = request.headers.get("webhook-signature", "").split(" ")
        verified.append(f"v1,{base64.b64encode(mac).decode()}" in versions)
        return web.Response(status=204 if verified[-1] else 401)

    app = web.Application()
    app.router.add_post("/", hook)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/", verified
    await runner.cleanup()


@pytest.mark.parametrize("secret", [KEY.decode(), "whsec_" + base64.b64encode(KEY).decode()])
async def test_a_receiver_that_knows_the_secret_can_verify(strict: tuple[str, list[bool]], secret: str) -> None:
    url, verified = strict
    receivers = make_receivers(lambda _: url, secret)
    await receivers.open()
    answer = await receivers.deliver("env:HOOK", "search/x", b'{"text": "hello"}')
    assert (answer.accepted, answer.said, verified) == (True, "answered 204", [True])
    await receivers.aclose()


@pytest.mark.parametrize("secret", ["", "another secret", "whsec_not base64"])
async def test_without_the_right_secret_it_cannot(strict: tuple[str, list[bool]], secret: str) -> None:
    url, verified = strict
    receivers = make_receivers(lambda _: url, secret)
    await receivers.open()
    answer = await receivers.deliver("env:HOOK", "search/x", b"{}")
    assert (answer.accepted, answer.said, verified) == (False, "answered 401", [False])
    await receivers.aclose()


def test_every_part_is_signed() -> None:
    signed = {
        signature("secret", "id", 1, b"body"),
        signature("secret2", "id", 1, b"body"),
        signature("secret", "id2", 1, b"body"),
        signature("secret", "id", 2, b"body"),
        signature("secret", "id", 1, b"body2"),
    }
    assert len(signed) == 5


async def test_what_goes_wrong_hides_the_address(receiver: Receiver) -> None:
    receiver.script = ["redirect", "hang", "cut"]
    receivers = make_receivers(lambda _: receiver.url)
    assert not (await receivers.deliver("env:HOOK", "x", b"{}")).accepted  # not open yet
    await receivers.open()
    said = [(await receivers.deliver("env:HOOK", "x", b"{}")).said for _ in range(3)]
    for url in ("http://127.0.0.1:1/secret-token", "no address", "file:///etc/passwd", "http://[::1/secret-token"):
        elsewhere = make_receivers(lambda _, url=url: url)
        await elsewhere.open()
        answer = await elsewhere.deliver("env:HOOK", "x", b"{}")
        assert not answer.accepted
        said.append(answer.said)
        await elsewhere.aclose()
    assert receiver.elsewhere == 0
    assert "redirects are not followed" in said[0]
    assert said[1] == "no answer within 1.5 s"
    assert all("secret-token" not in text and "127.0.0.1" not in text for text in said)
    await receivers.aclose()


async def test_a_target_of_another_version_is_not_guessed_at(receiver: Receiver) -> None:
    receivers = make_receivers(lambda _: receiver.url)
    await receivers.open()
    assert "not a kind of receiver" in (await receivers.deliver("pigeon:env:HOOK", "x", b"{}")).said
    assert receiver.got == []
    await receivers.aclose()


async def test_slack_gets_blocks_and_no_markup_of_the_teams(receiver: Receiver) -> None:
    receivers = make_receivers(lambda _: receiver.url)
    await receivers.open()
    payload = {
        "id": "a/b",
        "team": "s",
        "kind": "unpriced",
        "severity": "warning",
        "text": "<!here> & <b>" + "x" * 5000,
    }
    assert (await receivers.deliver("slack:env:HOOK", "a/b", orjson.dumps(payload))).accepted
    body, key = receiver.got[0]
    assert key == "a/b"
    assert body["text"].startswith(":warning: &lt;!here&gt; &amp; &lt;b&gt;xxx")
    assert [block["type"] for block in body["blocks"]] == ["header", "section", "context", "context"]
    assert len(body["blocks"][1]["text"]["text"]) <= 3000
    assert body["blocks"][0]["text"]["text"] == ":warning: s: unpriced"
    await receivers.aclose()
