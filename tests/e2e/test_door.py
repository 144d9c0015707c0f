"""The door of the real gateway, byte by byte: whatever is said, the answer is in shape and the line stays open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anthropic
import openai
import orjson
import pytest

from gateway.dialects.clients import PASSED_THROUGH, PATHS
from gateway.runtime.codings import Coding, Decoder, decode, encode
from tests.e2e.conftest import Providers, client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.line import Line
from tests.fakes.provider import Fail, Raw, Reply
from tests.support.naming import unique

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

INFERENCE = sorted(PATHS.keys() - PASSED_THROUGH.keys())
ASK: dict[str, Any] = {"model": "large", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 900}
CODINGS: tuple[Coding, ...] = ("gzip", "deflate", "br", "zstd")
ORIGIN = b"origin: https://app.example.com"
JSON = b"content-type: application/json"


def request(method: str, path: str, *headers: bytes, body: bytes | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1".encode(), b"host: gateway", *headers]
    if body is not None:
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


@pytest.fixture
async def connect(gateway: GatewayProcess) -> AsyncIterator[Callable[[], Awaitable[Line]]]:
    lines: list[Line] = []

    async def connect() -> Line:
        lines.append(Line(*await asyncio.open_connection("127.0.0.1", gateway.port)))
        return lines[-1]

    yield connect
    for line in lines:
        line.writer.close()


@pytest.fixture
async def line(connect: Callable[[], Awaitable[Line]]) -> Line:
    return await connect()


@pytest.fixture
async def key(gateway: GatewayProcess) -> bytes:
    return b"authorization: Bearer " + (await gateway.key("plain")).encode()


def error_of(path: str, answer: tuple[int, dict[bytes, bytes], bytes]) -> dict[str, Any]:
    """The error object, after a look at its shape."""
    _, headers, body = answer
    told = orjson.loads(body)
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"x-request-id"] == headers[b"request-id"]
    if path == "/api/chat":  # Ollama's errors are a text
        assert type(told["error"]) is str
        return {"message": told["error"]}
    error: dict[str, Any] = told["error"]
    if path.startswith("/v1/messages"):
        assert (told.keys(), told["type"]) == ({"type", "error", "request_id"}, "error")
        assert error.keys() == {"type", "message"}
        assert told["request_id"].encode() == headers[b"request-id"]
    else:
        assert error.keys() == {"message", "type", "param", "code"}
    return error


# -- bad input -----------------------------------------------------------------------------------------------------

MESSAGES = b'"messages": [{"role": "user", "content": "x"}]'
BAD: dict[str, bytes] = {
    "empty": b"",
    "torn": b'{"model": ',
    "array": b"[]",
    "string": b'"text"',
    "null": b"null",
    "nothing": b"{}",
    "deep": b"[" * 5000,
    "not utf-8": b'{"model": "large", "input": "\xff", "prompt": "\xff", "messages": "\xff"}',
    "surrogate": b'{"model": "large", "input": "\\ud800", "prompt": "\\ud800", "messages": "\\ud800"}',
    "NaN": b'{"model":"large","temperature":NaN,"input":"x","prompt":"x","max_tokens":9,%b}' % MESSAGES,
    "infinity": b'{"model": "large", "top_p": 1e999, "input": [], "prompt": {}, "max_tokens": -1, "messages": 5}',
    "model": b'{"model": 5, "input": "x", "prompt": "x", "max_tokens": 9, %b}' % MESSAGES,
    "no model": b'{"input": "x", "prompt": "x", "max_tokens": 9, %b}' % MESSAGES,
    "types": b'{"model": "large", "input": 5, "prompt": true, "max_tokens": 9, "messages": "hello"}',
    "elements": b'{"model":"large", "input": [null], "prompt": [null], "max_tokens": 9, "messages": [null]}',
    "stream": b'{"model":"large","stream":"yes","input":"x","prompt":"x","max_tokens":9,%b}' % MESSAGES,
}


@pytest.mark.parametrize("path", INFERENCE)
async def test_bad_bodies_are_told_in_shape_and_the_line_stays_open(line: Line, key: bytes, path: str) -> None:
    for name, body in BAD.items():
        if name == "stream" and path.endswith("/embeddings"):
            continue  # which know no such field
        line.say(request("POST", path, key, JSON, body=body))
        answer = await line.hear()
        assert answer[0] == 400, (name, answer)
        assert len(error_of(path, answer)["message"]) > 10, name
        assert answer[1][b"x-should-retry"] == b"false", name
        assert b"connection" not in answer[1], name


@pytest.mark.parametrize("path", INFERENCE)
async def test_bad_heads_are_told_in_shape_and_the_line_stays_open(line: Line, key: bytes, path: str) -> None:
    body = orjson.dumps(ASK)
    wrong = b"authorization: Bearer tg-wrong"
    for said, status in (
        (request("POST", path, JSON, body=body), 401),
        (request("POST", path, wrong, JSON, body=body), 401),
        (request("POST", path, b"x-api-key: \xff\xfe", JSON, body=body), 401),
        (request("POST", path, wrong, key, JSON, body=body), 401),  # of two headers the first counts
        (request("POST", path, key, body=body), 415),
        (request("POST", path, key, b"content-type: text/plain", body=body), 415),
        (request("POST", path, key, b"content-type: \xff", body=body), 415),
        (request("GET", path, key), 405),
        (request("DELETE", path, key), 405),
        (request("PUT", path, key, JSON, body=body), 405),
        (request("POST", path + "/nothing/here", key, JSON, body=body), 404),
        (request("POST", path, key, JSON, b"content-encoding: compress", body=body), 415),
        (request("POST", path, key, JSON, b"content-encoding: gzip", body=body), 400),
        (request("POST", path, key, JSON, b"x-thriftgate-cache: maybe", body=body), 400),
        (request("POST", path, key, JSON, b"x-thriftgate-session: \xff", body=body), 400),
    ):
        line.say(said)
        answer = await line.hear()
        assert answer[0] == status, (said, answer)
        error_of(path, answer)
        assert (status == 405) == (answer[1].get(b"allow") == b"POST")
        assert b"connection" not in answer[1]
    line.say(request("POST", path, key, JSON, b"content-length: %d" % (21 * 2**20)))
    answer = await line.hear()
    assert answer[0] == 413
    error_of(path, answer)


async def test_what_is_not_there_is_told_in_shape(line: Line, key: bytes) -> None:
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("POST", "/v1/nothing", 404),
        ("GET", "/v1/messages/nothing", 404),
        ("PUT", "/v1/models", 405),
        ("POST", "/health", 405),
        ("GET", "/v1/%ff/../..", 404),
        ("GET", "/v1/models/" + "x" * 5000, 404),
    ):
        line.say(request(method, path, key, body=b"" if method in ("POST", "PUT") else None))
        answer = await line.hear()
        assert answer[0] == status, (path, answer)
        error_of(path, answer)
        if status == 405:
            assert b"GET" in answer[1][b"allow"]
    line.say(request("GET", "/v1/nothing", key, b"anthropic-version: 2023-06-01"))
    error_of("/v1/messages", await line.hear())


@pytest.mark.parametrize("garbage", [b"BREW /v1/models HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"hello\r\n\r\n"])
async def test_what_is_no_http_is_told_in_shape(line: Line, garbage: bytes) -> None:
    line.say(garbage)
    answer = await line.hear()
    assert answer[0] == 400
    error_of("", answer)


async def test_a_head_beyond_bounds_is_told_so(line: Line, key: bytes) -> None:
    line.say(b"GET /v1/models HTTP/1.1\r\n" + b"x-many: 1\r\n" * 10_000)
    answer = await line.hear()
    assert answer[0] == 431
    error_of("", answer)


# -- what a request may look like ----------------------------------------------------------------------------------


async def test_both_kinds_of_key_open_every_door(line: Line, gateway: GatewayProcess, providers: Providers) -> None:
    secret = (await gateway.key("plain")).encode()
    forms = (b"Authorization: Bearer ", b"AUTHORIZATION: bearer ", b"authorization: BEARER  ", b"X-Api-Key: ")
    for form in forms:
        for method, path, body in (("POST", "/v1/chat/completions", orjson.dumps(ASK)), ("GET", "/v1/models", None)):
            line.say(request(method, path, form + secret, JSON, body=body))
            assert (await line.hear())[0] == 200, (form, path)


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_encoded_request_is_read_whole_or_in_chunks(
    line: Line, key: bytes, providers: Providers, coding: Coding
) -> None:
    body = encode(orjson.dumps(ASK), coding)
    head = b"content-encoding: " + coding.encode()
    line.say(request("POST", "/v1/chat/completions", key, JSON, head, body=body))
    assert (await line.hear())[0] == 200
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body)))
    line.say(request("POST", "/v1/chat/completions", key, JSON, head, b"transfer-encoding: chunked"), chunks)
    line.say(b"0\r\n\r\n")
    assert (await line.hear())[0] == 200
    assert [each.json["messages"] for each in providers.large.exchanges] == [ASK["messages"]] * 2
    bomb = encode(bytes(30 * 2**20), coding)
    line.say(request("POST", "/v1/chat/completions", key, JSON, head, body=bomb))
    assert (await line.hear())[0] == 413


async def test_a_client_that_expects_100_continue_is_told_to_go_on(
    line: Line, key: bytes, providers: Providers
) -> None:
    body, expects = orjson.dumps(ASK), b"expect: 100-continue"
    length = b"content-length: %d" % len(body)
    for _ in range(2):
        line.say(request("POST", "/v1/chat/completions", key, JSON, expects, length))
        async with asyncio.timeout(30):
            assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.say(body)
        assert (await line.hear())[0] == 200
    line.say(request("POST", "/v1/chat/completions", JSON, expects, length))
    status, headers, _ = await line.hear()
    assert (status, headers[b"connection"]) == (401, b"close")


async def test_ten_megabytes_are_read(line: Line, key: bytes, providers: Providers) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10 * 2**20}}
    body = orjson.dumps(ASK | {"messages": [{"role": "user", "content": [picture]}]})
    line.say(request("POST", "/v1/chat/completions", key, JSON, body=body))
    status, _, answer = await line.hear()
    assert status == 200, answer
    assert providers.large.last.json["messages"][0]["content"] == [picture]


# -- what an answer looks like -------------------------------------------------------------------------------------


async def test_every_answer_has_its_id_under_both_names(line: Line, key: bytes, providers: Providers) -> None:
    ids = set()
    said = [
        request("POST", "/v1/chat/completions", key, JSON, body=orjson.dumps(ASK)),
        request("POST", "/v1/chat/completions", key, JSON, body=orjson.dumps(ASK | {"stream": True})),
        request("GET", "/"),
        request("GET", "/health"),
        request("GET", "/v1/models", key),
        request("GET", "/v1/models", key, b"anthropic-version: 2023-06-01"),
        request("GET", "/nothing"),
        request("OPTIONS", "/v1/messages", ORIGIN),
    ]
    for one in said:
        line.say(one)
        _, headers, _ = await line.hear() if b"OPTIONS" not in one else (*await line.bare(), b"")
        assert headers[b"x-request-id"] == headers[b"request-id"]
        ids.add(headers[b"request-id"])
    assert len(ids) == len(said)


async def test_head_is_get_without_a_body(line: Line, key: bytes) -> None:
    for path in ("/", "/health/live", "/v1/models", "/health"):
        line.say(request("GET", path, key))
        status, headers, body = await line.hear()
        line.say(request("HEAD", path, key))
        only = await line.bare()
        assert (status, only[0]) == (200, 200)
        assert int(only[1][b"content-length"]) == len(body)
        assert only[1].keys() == headers.keys()


async def test_a_page_may_ask_and_read_everything_but_the_operators(
    line: Line, key: bytes, providers: Providers
) -> None:
    wants = (b"access-control-request-method: POST", b"access-control-request-headers: authorization,x-stainless-os")
    for path in [*INFERENCE, "/v1/models", "/v1/files", "/", "/v1/nothing"]:
        line.say(request("OPTIONS", path, ORIGIN, *wants))
        status, headers = await line.bare()
        assert (status, headers[b"access-control-allow-origin"]) == (204, b"*")
        assert headers[b"access-control-allow-headers"] == b"authorization,x-stainless-os"
        assert b"POST" in headers[b"access-control-allow-methods"]
        assert int(headers[b"access-control-max-age"]) > 0
    providers.large.script(Reply(), Reply(), Fail(400))
    for said in (
        request("POST", "/v1/chat/completions", key, JSON, ORIGIN, body=orjson.dumps(ASK)),
        request("POST", "/v1/chat/completions", key, JSON, ORIGIN, body=orjson.dumps(ASK | {"stream": True})),
        request("POST", "/v1/chat/completions", key, JSON, ORIGIN, body=orjson.dumps(ASK)),
        request("POST", "/v1/chat/completions", ORIGIN, body=b""),
        request("GET", "/v1/messages", key, ORIGIN),
        request("GET", "/v1/models", ORIGIN),
        request("GET", "/nothing", ORIGIN),
        request("GET", "/", ORIGIN),
    ):
        line.say(said)
        _, headers, _ = await line.hear()
        assert headers[b"access-control-allow-origin"] == b"*", said
        assert b"x-request-id" in headers[b"access-control-expose-headers"]
    for path in ("/admin/keys", "/metrics", "/dashboard"):
        for method in ("OPTIONS", "GET"):
            line.say(request(method, path, ORIGIN, *wants))
            _, headers, _ = await line.hear()
            assert not [name for name in headers if name.startswith(b"access-control")], path
    line.say(request("GET", "/v1/models", key))
    assert b"access-control-allow-origin" not in (await line.hear())[1]


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_plain_answer_is_encoded_when_asked(
    line: Line, key: bytes, providers: Providers, coding: Coding
) -> None:
    providers.large.script(Reply(tokens=800), Reply(tokens=800))
    accept = b"accept-encoding: " + coding.encode()
    for path in ("/v1/chat/completions", "/v1/messages"):
        line.say(request("POST", path, key, JSON, accept, body=orjson.dumps(ASK)))
        status, headers, body = await line.hear()
        assert (status, headers[b"content-encoding"], headers[b"vary"]) == (200, coding.encode(), b"accept-encoding")
        assert b"t799" in decode(body, coding, 10**6)


@pytest.mark.parametrize("coding", ["", *CODINGS])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_no_event_of_a_stream_is_held_back(
    line: Line, key: bytes, providers: Providers, coding: Any, path: str
) -> None:
    providers.large.script(Reply(tokens=12, drip_s=0.05))
    accept = b"accept-encoding: " + (coding.encode() or b"identity")
    line.say(request("POST", path, key, JSON, accept, body=orjson.dumps(ASK | {"stream": True})))
    status, headers = await line.bare()
    assert status == 200
    assert headers.get(b"content-encoding", b"") == coding.encode()
    reading, text, ahead = Decoder(coding) if coding else None, b"", []
    async for chunk in line.chunks():
        text += reading.feed(chunk, 10**5) if reading else chunk
        words = text.count(b' t"') + sum(text.count(b"t%d" % number) > 0 for number in range(12))
        ahead.append(providers.large.last.chunks_sent - words)
    assert sorted(ahead)[len(ahead) // 2] <= 3, "the client had each word soon after it was said"
    assert len(ahead) >= 6
    assert b"t11" in text
    assert reading is None or reading.ended


async def test_an_upstream_that_encodes_unasked_is_understood(line: Line, key: bytes, providers: Providers) -> None:
    plain = orjson.dumps(
        {
            "id": "x", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    )  # fmt: skip
    for coding in CODINGS:
        body = encode(plain, coding)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: %b\r\n" % coding.encode()
        providers.large.script(Raw((head + b"content-length: %d\r\n\r\n" % len(body) + body,)))
        line.say(request("POST", "/v1/chat/completions", key, JSON, body=orjson.dumps(ASK)))
        status, headers, body = await line.hear()
        assert (status, orjson.loads(body)["choices"][0]["message"]["content"]) == (200, "hi")
        assert b"content-encoding" not in headers


async def test_headers_of_the_hop_and_cookies_pass_in_neither_direction(
    line: Line, key: bytes, providers: Providers
) -> None:
    body = b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[],"usage":null}'
    told = (
        b"set-cookie: __cf_bm=1", b"connection: x-hop", b"x-hop: 1", b"keep-alive: timeout=5", b"server: cloudflare",
        b"openai-organization: org-of-the-gateway", b"openai-processing-ms: 7", b"openai-version: 2020-10-01",
        b"x-ratelimit-remaining-requests: 99", b"anthropic-organization-id: org-2", b"alt-svc: h3", b"x-request-id: r",
        b"content-type: application/json",
    )  # fmt: skip
    head = b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(told) + b"\r\ncontent-length: %d\r\n\r\n" % len(body)
    providers.large.script(Raw((head + body,)))
    sent = (b"cookie: session=secret", b"te: trailers", b"proxy-authorization: Basic x", b"x-hop: 1", b"keep-alive: 5")
    line.say(request("POST", "/v1/chat/completions", key, JSON, *sent, body=orjson.dumps(ASK)))
    _, headers, _ = await line.hear()
    assert headers[b"openai-processing-ms"] == b"7"
    assert headers[b"openai-version"] == b"2020-10-01"
    assert headers[b"x-ratelimit-remaining-requests"] == b"99"
    assert headers[b"x-request-id"].startswith(b"req_")
    unwanted = {b"set-cookie", b"connection", b"x-hop", b"keep-alive", b"server", b"alt-svc", b"openai-organization"}
    assert not (unwanted | {b"anthropic-organization-id"}) & headers.keys()
    arrived = dict(providers.large.last.headers)
    assert not {b"cookie", b"te", b"proxy-authorization", b"x-hop", b"keep-alive"} & arrived.keys()
    assert arrived[b"accept-encoding"] == b"identity"


# -- the vendors' own clients --------------------------------------------------------------------------------------


async def test_an_sdks_retry_after_a_timeout_neither_runs_nor_bills_twice(
    gateway: GatewayProcess, providers: Providers
) -> None:
    providers.large.script(Reply(text="only once", delay_s=1.0), Reply(text="twice"))
    sdk = client(gateway, await gateway.key("plain")).with_options(timeout=0.4, max_retries=5)
    raw = await sdk.chat.completions.with_raw_response.create(
        model="large", messages=ASK["messages"], extra_headers={"Idempotency-Key": unique("sdk-retry")}
    )
    assert raw.parse().choices[0].message.content == "only once"
    assert raw.retries_taken >= 1
    assert raw.headers["idempotency-replayed"] == "true"
    assert len(providers.large.exchanges) == 1


async def test_anthropics_sdk_lists_models_and_sees_its_limits(
    gateway: GatewayProcess, providers: Providers, run: int
) -> None:
    key = await gateway.key(f"rpm3-{run}")
    async with anthropic.AsyncAnthropic(base_url=gateway.base, api_key=key, max_retries=0) as sdk:
        names = [model.id async for model in sdk.models.list(limit=2)]
        assert {"auto", "small", "large", "claude"} <= set(names)
        assert len(names) == len(set(names))
        assert (await sdk.models.retrieve("claude")).max_input_tokens == 200_000
        with pytest.raises(anthropic.NotFoundError):
            await sdk.models.retrieve("gpt-99")
        raw = await sdk.messages.with_raw_response.create(model="claude", max_tokens=9, messages=ASK["messages"])
        assert raw.headers["anthropic-ratelimit-requests-limit"] == "3"
        assert raw.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
        assert raw.headers["request-id"].startswith("req_")
        for _ in range(2):
            await sdk.messages.create(model="claude", max_tokens=9, messages=ASK["messages"])
        with pytest.raises(anthropic.RateLimitError) as refused:
            await sdk.messages.create(model="claude", max_tokens=9, messages=ASK["messages"])
    headers = refused.value.response.headers
    assert headers["x-should-retry"] == "true"
    assert int(headers["retry-after-ms"]) > 0
    assert headers["anthropic-ratelimit-requests-remaining"] == "0"


async def test_openais_sdk_lists_models(gateway: GatewayProcess) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    assert {"auto", "small", "large", "claude"} <= {model.id async for model in sdk.models.list()}
    with pytest.raises(openai.NotFoundError) as missing:
        await sdk.models.retrieve("gpt-99")
    assert missing.value.code == "model_not_found"
