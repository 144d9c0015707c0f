"""What frames a chunked body: extensions and trailers, a client's or a provider's. They are bounded and say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import orjson
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.line import Line
from tests.fakes.provider import Provider
from tests.fakes.provider_script import Raw
from tests.support.requests import chat_body

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # a process starts, on a machine that is busy

CONFIG = """\
trials: {{cache_checks: 0}}
admin_api: true
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
"""
CHAT = chat_body(model="small")
WHOLE = orjson.dumps(
    {
        "id": "x", "object": "chat.completion", "created": 1, "model": "scripted-small",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    }
)  # fmt: skip
PATHS = ("/v1/chat/completions", "/v1/messages/count_tokens", "/v1/files")
"""One that is answered without ASGI, and two that are not."""
LARGE = 2**20
SIGNATURE = b";chunk-signature=" + b"0" * 64


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("framing") / "home"
    with GatewayProcess(home, CONFIG.format(port=port), {"one": "cache: {enabled: false}\n"}) as process:
        yield process


@pytest.fixture
async def line(gateway: GatewayProcess) -> AsyncIterator[Line]:
    line = Line(*await asyncio.open_connection("127.0.0.1", gateway.port))
    yield line
    line.writer.close()


@pytest.fixture
async def key(gateway: GatewayProcess) -> bytes:
    return b"authorization: Bearer " + (await gateway.key("one")).encode()


def head(path: str, *headers: bytes) -> bytes:
    kind = (
        b"content-type: multipart/form-data; boundary=b" if path == "/v1/files" else b"content-type: application/json"
    )
    lines = (f"POST {path} HTTP/1.1".encode(), b"host: h", kind, b"transfer-encoding: chunked", *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def in_chunks(body: bytes, size: int, extension: bytes = b"") -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)


async def refusal(line: Line) -> int | None:
    """The status of an answer after which the connection ends; None: it was reset, over bytes that nobody read."""
    try:
        status, headers, _ = await line.hear()
        assert headers[b"connection"] == b"close"
        assert await line.closed()
    except (ConnectionError, asyncio.IncompleteReadError):
        return None
    return status


async def sent_until_refused(line: Line, pieces: Iterator[bytes]) -> int:
    """Bytes that the gateway took before it ended the connection, or all of them."""
    sent = 0
    try:
        for piece in pieces:
            if line.reader.at_eof() or line.writer.is_closing():
                break
            line.say(piece)
            sent += len(piece)
            async with asyncio.timeout(30):
                await line.writer.drain()
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    return sent


@pytest.mark.parametrize("path", PATHS)
async def test_small_chunks_with_large_extensions_are_refused(line: Line, key: bytes, path: str) -> None:
    piece = b"1;" + b"x" * 2**14 + b"\r\n \r\n"
    line.say(head(path, key))
    assert await sent_until_refused(line, iter([piece] * 4096)) < 2**24
    assert await refusal(line) in (431, None)


async def test_the_refusal_says_what_frames_the_body(line: Line, key: bytes) -> None:
    piece = b"1;" + b"x" * 2**14 + b"\r\n \r\n"
    line.say(head("/v1/chat/completions", key, b"expect: 100-continue"))
    assert (await line.bare())[0] == 100
    line.say((piece * 5)[:-2])  # the last byte is one too many; what were left unread would reset the connection
    status, _, body = await line.hear()
    assert (status, b"larger chunks, without extensions" in body) == (431, True), body


@pytest.mark.parametrize(
    ("pad", "size", "extension"), [(0, 1, b""), (20_000, 1, b""), (20_000, 16, SIGNATURE), (LARGE, 8192, SIGNATURE)]
)
async def test_honest_chunks_are_read(
    line: Line, key: bytes, provider: Provider, pad: int, size: int, extension: bytes
) -> None:
    for _ in range(2):  # the second time on a connection that is kept
        body = in_chunks(CHAT + b" " * pad, size, extension) + b"0\r\n\r\n"
        line.say(head("/v1/chat/completions", key), body)
        assert (await line.hear())[0] == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "rest",
    [b"0\r\nx-long: " + b"y" * LARGE, b"0\r\n" + b"x: y\r\n" * (LARGE // 6), b"1;" + b"y" * LARGE],
    ids=["a long trailer", "many trailers", "a long extension"],
)
async def test_trailers_and_an_extension_are_as_bounded_as_a_head(
    line: Line, key: bytes, path: str, rest: bytes
) -> None:
    line.say(head(path, key), in_chunks(b" " * 2**18, 2**14), rest)
    assert await refusal(line) in (431, None)


async def test_trailers_command_nothing_and_reach_no_provider(line: Line, key: bytes, provider: Provider) -> None:
    trailers = (b"x-thriftgate-cache: maybe", b"x-thriftgate-timeout: never", b"openai-beta: assistants=v2")
    fields = b"".join(each + b"\r\n" for each in (*trailers, b"content-encoding: gzip", b"idempotency-key: mine"))
    line.say(head("/v1/chat/completions", key), in_chunks(CHAT, len(CHAT)), b"0\r\n%b\r\n" % fields)
    status, headers, body = await line.hear()
    assert status == 200, body
    assert b"idempotency-replayed" not in headers
    assert provider.last.json["messages"] == orjson.loads(CHAT)["messages"]
    assert provider.last.header(b"openai-beta") is None


# -- a provider's --------------------------------------------------------------------------------------------------


def chunked_reply(status: bytes, rest: bytes, **how: str) -> Raw:
    start = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" % status
    return Raw((start, rest), then="hang") if how else Raw((start + rest,))


async def test_a_provider_s_trailers_are_no_headers_of_its_answer(line: Line, key: bytes, provider: Provider) -> None:
    fields = b"openai-version: trailed\r\nx-ratelimit-limit-requests: 1\r\nretry-after: 60\r\nx-should-retry: false\r\n"
    ends = in_chunks(WHOLE, len(WHOLE)) + b"0\r\n%b\r\n" % fields
    provider.script(chunked_reply(b"200 OK", ends), chunked_reply(b"200 OK", ends), chunked_reply(b"503 Busy", ends))
    for _ in range(2):
        line.ask(CHAT, key, b"content-type: application/json")
        status, headers, _ = await line.hear()
        assert status == 200
        assert not headers.keys() & {b"openai-version", b"x-ratelimit-limit-requests", b"retry-after"}
    line.ask(CHAT, key, b"content-type: application/json")
    assert b"60" not in (await line.hear())[1].get(b"retry-after", b"")


@pytest.mark.parametrize("rest", [b"0\r\nx: ", b"1;"], ids=["trailers", "an extension"])
async def test_a_provider_whose_framing_never_ends_is_left(
    line: Line, key: bytes, provider: Provider, rest: bytes
) -> None:
    provider.script(chunked_reply(b"200 OK", b"2\r\n{}\r\n" + rest + b"y" * LARGE, then="hang"))
    line.ask(CHAT, key, b"content-type: application/json")
    status, _, body = await line.hear()
    assert (status, b"trailers" in body) == (502, True), body
