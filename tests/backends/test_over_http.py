from __future__ import annotations

import time
from dataclasses import replace
from email.utils import formatdate

import pytest

from gateway.backends.fleet import MAY_LEAD_BACK
from gateway.backends.http.canned import Canned
from gateway.backends.providers.anthropic import Anthropic
from gateway.backends.providers.base import Call
from gateway.backends.providers.gemini import Gemini, with_delay
from gateway.backends.providers.openai import OpenAI
from gateway.dialects.openai_chat.native import ChatToChat
from gateway.domain.backend import Backend
from gateway.domain.request import Controls
from gateway.errors import AllBackendsFailed
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import read
from tests.fakes.provider import Provider, Raw
from tests.support.requests import chat_request


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({b"retry-after": b"7"}, 7.0),
        ({b"retry-after": b"0.5"}, 0.5),
        ({b"retry-after": b"soon"}, None),
        ({b"retry-after": b"-3"}, None),
        ({b"retry-after": b"\xff\xb2"}, None),
        ({b"retry-after": b"Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({b"retry-after": b"7", b"retry-after-ms": b"250"}, 0.25),
        ({b"retry-after": b"7", b"retry-after-ms": b"x"}, 7.0),
    ],
)
async def test_retry_after_in_all_its_shapes(headers: dict[bytes, bytes], seconds: float | None) -> None:
    kind = OpenAI(Backend(name="x", kind="openai", base_url="http://127.0.0.1:9/v1", model="x"))
    assert kind.retry_after_s(Canned(429, b"", headers)) == seconds
    await kind.aclose()


@pytest.mark.parametrize(
    ("base_url", "hops"),
    [
        ("http://127.0.0.1:9/v1", b"x-thriftgate-hops: first,us\r\n"),
        ("https://gateway.example.com/v1", b"x-thriftgate-hops: first,us\r\n"),
        ("https://api.openai.com/v1", b""),
    ],
)
async def test_an_address_that_may_lead_back_gets_the_hops(base_url: str, hops: bytes) -> None:
    request = chat_request()
    request.controls = Controls(hops=("first",))
    for name, make in MAY_LEAD_BACK.items():
        kind = make(Backend(name="x", kind=name, base_url=base_url, model="x"), hop="us")
        call = Call(request, ChatToChat(), b"", 1.0, 1.0, 1.0, 1.0, attempt_id="a1")
        assert kind.lines(call) == b"x-request-id: a1\r\n" + hops
        await kind.aclose()


async def test_retry_after_as_a_date_to_come() -> None:
    kind = Anthropic(Backend(name="x", kind="anthropic", base_url="http://127.0.0.1:9/v1", model="x"))
    seconds = kind.retry_after_s(Canned(429, b"", {b"retry-after": formatdate(time.time() + 30).encode()}))
    assert seconds is not None
    assert 28 <= seconds <= 30
    await kind.aclose()


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(("location", "told"), [("local", True), ("hosted", False)])
async def test_a_clients_trace_goes_to_local_servers_and_to_no_provider(
    small: Provider, caller_of: CallerOf, kind: str, location: str, told: bool
) -> None:
    caller = caller_of(backend_at(small, "small", kind=kind, location=location))
    headers = {b"traceparent": b"00-aa-bb-01", b"tracestate": b"vendor=1", b"x-client-request-id": b"mine"}
    await read(await caller.call(replace(chat_request(), headers=headers)))
    assert small.last.header(b"x-client-request-id") == b"mine"
    assert (small.last.header(b"traceparent") is not None) == told
    assert (small.last.header(b"tracestate") is not None) == told


async def test_togethers_reset_is_its_retry_interval(small: Provider, caller_of: CallerOf) -> None:
    small.script(Raw((b"HTTP/1.1 429 No\r\nx-ratelimit-reset: 7\r\ncontent-length: 2\r\n\r\n{}",)))
    with pytest.raises(AllBackendsFailed) as caught:
        await caller_of().call(chat_request())
    assert caught.value.retry_after_s == 7


@pytest.mark.parametrize(
    ("status", "headers", "seconds"), [(429, {}, 7.5), (429, {b"retry-after": b"3"}, 3.0), (400, {}, None)]
)
async def test_googles_retry_delay_is_a_retry_after(
    status: int, headers: dict[bytes, bytes], seconds: float | None
) -> None:
    body = b'{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7.5s"}]}}'
    upstream = await with_delay(Canned(status, body, headers))
    assert (upstream.status, await upstream.read(1000)) == (status, body)
    provider = Gemini(Backend(name="g", kind="gemini", model="gemini-2.5-pro"))
    assert provider.retry_after_s(upstream) == seconds


async def test_the_headers_that_are_kept_are_those_of_each_answer(small: Provider, caller_of: CallerOf) -> None:
    caller, kept = caller_of(), list[object]()
    body = b'{"choices":[{"message":{"content":"a"}}]}'
    for head in (b"date: 1\r\nx-ratelimit-rest: 7", b"openai-version: 2\r\nDate: 2", b"date: 3\r\nx-ratelimit-rest: 9"):
        small.script(Raw((b"HTTP/1.1 200 OK\r\n%b\r\ncontent-length: %d\r\n\r\n%b" % (head, len(body), body),)))
        answer = await caller.call(chat_request())
        assert answer.attempt is not None
        kept.append(list(answer.attempt.headers))
    assert kept == [[(b"x-ratelimit-rest", b"7")], [(b"openai-version", b"2")], [(b"x-ratelimit-rest", b"9")]]
