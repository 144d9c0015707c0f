"""What every route's answer gets, whoever made it."""

from __future__ import annotations

import orjson
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from gateway.api.auth import error_response
from gateway.api.server.cors import Cors
from gateway.api.server.envelope import Envelope
from gateway.errors import NotFound
from gateway.runtime.codings import Decoder, decode
from tests.fakes.client import Client

ORIGIN = {"origin": "https://app.example.com"}


async def exchange(response: Response, path: str = "/v1/models", method: str = "GET", **headers: str) -> Client:
    """A client that got `response` through the envelope."""
    app = Envelope(Cors(("*",)), "auto").asgi(response, lambda path: "GET, OPTIONS")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await Client(app, path, method=method, headers=named).run()


async def test_every_answer_has_the_requests_id_under_both_names() -> None:
    first, second = [(await exchange(Response(b"{}"))).headers for _ in range(2)]
    assert first["x-request-id"] == first["request-id"]
    assert first["x-request-id"].startswith("req_")
    assert first["x-request-id"] != second["x-request-id"]
    assert "access-control-allow-origin" not in first


async def test_an_error_tells_the_same_id_in_head_and_body() -> None:
    async def missing(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        await error_response(NotFound("not here"), Request(scope))(scope, receive, send)

    client = await Client(
        Envelope(Cors(("*",)), "auto").asgi(missing, lambda path: "GET, OPTIONS"), "/v1/messages/x", method="GET"
    ).run()
    assert client.json["request_id"] == client.headers["request-id"] == client.headers["x-request-id"]
    assert client.json["type"] == "error"


async def test_a_page_is_told_that_it_may_read_but_not_what_is_the_operators() -> None:
    assert (await exchange(Response(b"{}", 404), **ORIGIN)).headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in (await exchange(Response(b"{}"), "/admin/keys", **ORIGIN)).headers


async def test_a_preflight_needs_no_route_and_no_key() -> None:
    client = await exchange(Response(b"never", 500), method="OPTIONS", access_control_request_method="POST", **ORIGIN)
    assert (client.status, client.body) == (204, b"")
    assert client.headers["access-control-allow-origin"] == "*"
    assert client.headers["x-request-id"]
    assert (await exchange(Response(b"mine", 405), "/admin/keys", "OPTIONS", **ORIGIN)).status == 405


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
async def test_a_long_answer_is_encoded_when_asked(coding: str) -> None:
    body = orjson.dumps([{"id": f"model-{number}"} for number in range(200)])
    client = await exchange(Response(body, media_type="application/json"), accept_encoding=coding)
    assert client.headers["content-encoding"] == coding
    assert int(client.headers["content-length"]) == len(client.body) < len(body)
    assert decode(client.body, coding, len(body)) == body  # type: ignore[arg-type]
    assert client.headers["vary"] == "accept-encoding"


async def test_what_is_small_or_an_error_or_only_a_head_stays_as_it_is() -> None:
    long = "x" * 5000
    for response, method in (
        (PlainTextResponse("short"), "GET"),
        (PlainTextResponse(long, 500), "GET"),
        (PlainTextResponse(long), "HEAD"),
        (Response(long, media_type="image/png"), "GET"),
    ):
        client = await exchange(response, method=method, accept_encoding="gzip")
        assert "content-encoding" not in client.headers
        assert int(client.headers["content-length"]) in (5, 5000)


async def test_a_long_file_is_encoded_piece_by_piece() -> None:
    async def pieces():  # type: ignore[no-untyped-def]
        for number in range(20):
            yield b'{"line": %d}\n' % number * 100

    response = StreamingResponse(pieces(), headers={"content-type": "application/jsonl", "content-length": "31000"})
    client = await exchange(response, accept_encoding="gzip")
    assert client.headers["content-encoding"] == "gzip"
    assert "content-length" not in client.headers
    reading = Decoder("gzip")
    for number, message in enumerate(client.messages[1:-1]):
        assert reading.feed(message["body"], 10_000) == b'{"line": %d}\n' % number * 100
    reading.feed(client.messages[-1]["body"], 10_000)
    assert reading.ended
