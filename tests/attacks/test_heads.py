"""What a request's head, its trailers and its path may not do; and how long a provider's head may have us wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.fakes.provider_script import Fail, Raw
from tests.support.requests import chat_body

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # a process starts, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      price: {{input: 0.1, output: 0.4}}}}
  - {{name: theirs, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-theirs, tier: large,
      price: {{input: 0.1, output: 0.4}}, teams: [another]}}
{waiting}local_model: {{enabled: false}}
admin_api: true
"""
WAITS = (
    *("999999999999", "9" * 5000, "1e400", "-1", "nan", "inf", "\u0663", "0x10"),
    *("Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 99999 23:59:59 GMT", "Fri, 31 Dec 0001 23:59:59 +9999"),
)
WAITING = """\
  - {{name: w{number}, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-{number}, tier: hosted,
      price: {{input: 0.1, output: 0.4}}}}
"""
CHAT = chat_body(model="small")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("heads") / "home"
    waiting = "".join(WAITING.format(number=number, port=port) for number in (*range(len(WAITS)), 429, 503))
    config = CONFIG.format(port=port, waiting=waiting)
    with GatewayProcess(home, config, {"one": "cache: {enabled: false}\n"}) as process:
        yield process


@pytest.fixture
async def key(gateway: GatewayProcess) -> str:
    return await gateway.key("one")


async def answers(gateway: GatewayProcess, sent: bytes) -> list[tuple[int, dict[str, str], Any]]:
    """(status, headers, JSON) of all that comes back until the gateway closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        writer.write(sent)
        async with asyncio.timeout(30):
            heard = await reader.read()
    except ConnectionResetError:
        heard = b""
    finally:
        writer.close()
    found = []
    while heard:
        head, _, heard = heard.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        length = int(headers["content-length"])
        found.append((int(status.split()[1]), headers, orjson.loads(heard[:length] or b"null")))
        heard = heard[length:]
    return found


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "host: h", *fields)).encode() + b"\r\n\r\n"


# -- trailers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages/count_tokens", "/v1/files", "/admin/keys"])
@pytest.mark.parametrize("begin", ["with the head", "after the head"])
async def test_a_key_in_a_trailer_is_no_key(gateway: GatewayProcess, key: str, path: str, begin: str) -> None:
    start = head(f"POST {path}", "content-type: application/json", "transfer-encoding: chunked", "connection: close")
    rest = b"%x\r\n%b\r\n0\r\nauthorization: Bearer %b\r\n\r\n" % (len(CHAT), CHAT, key.encode())
    if begin == "with the head":
        ((status, _, _),) = await answers(gateway, start + rest)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(start)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(rest)
        status = int((await reader.readline()).split()[1])
        writer.close()
    assert status == 401


async def test_what_trailers_ask_for_is_not_done(gateway: GatewayProcess, key: str, provider: Provider) -> None:
    fields = (f"authorization: Bearer {key}", "content-type: application/json", "transfer-encoding: chunked")
    start = head("POST /v1/chat/completions", *fields)
    body = b"%x\r\n%b\r\n" % (len(CHAT), CHAT)
    trailers = b"0\r\nx-thriftgate-tags: team=another\r\nx-thriftgate-tier: nonsense\r\n\r\n"
    plain = head("GET /v1/models", "connection: close")
    (first, second) = await answers(gateway, start + body + trailers + plain)
    assert first[0] == 200
    assert second[0] == 401, "the key of one request is none of the next"


async def test_trailers_without_end_are_not_read(gateway: GatewayProcess, key: str) -> None:
    for path in ("/v1/chat/completions", "/v1/messages/count_tokens"):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        start = head(f"POST {path}", f"authorization: Bearer {key}", "transfer-encoding: chunked")
        writer.write(start + b"%x\r\n%b\r\n0\r\nx-long: " % (len(CHAT), CHAT))
        sent = 0
        try:
            async with asyncio.timeout(30):
                while not reader.at_eof() and sent < 2**26:
                    writer.write(b"x" * 2**16)
                    sent += 2**16
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        finally:
            writer.close()
        assert sent < 2**24


# -- heads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["POST /v1/chat/completions", "GET /health", "POST /admin/keys"])
@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ([f"x-{number}: 1" for number in range(10_000)], 431, "head"),
        ([f"x-{number}: 1" for number in range(200)], 431, "header fields"),
        (["x-same: 1"] * 200, 431, "header fields"),
        ([f"x-{number}: {'1' * 2000}" for number in range(60)], 431, "head"),
        ([f"x-long: {'1' * 2**17}"], 431, "head"),
        (["host: other"], 400, "Host"),
        (["host: h"], 400, "Host"),
    ],
    ids=["10,000 fields", "200 fields", "200 of one name", "120 kB", "131 kB in one", "two hosts", "one host twice"],
)
async def test_a_head_beyond_its_limits_is_refused(
    gateway: GatewayProcess, line: str, fields: list[str], status: int, said: str
) -> None:
    found = await answers(gateway, head(line, "content-length: 0", *fields))
    # What of a long head is still under way when it is refused may reset the connection, with the answer in it.
    assert [each[0] for each in found] in ([status], *([[]] if status == 431 else []))
    assert all(said in str(each[2]) for each in found)


@pytest.mark.parametrize("line", ["POST /v1/chat/completions", "GET /v1/usage", "POST /admin/keys", "GET /health"])
@pytest.mark.parametrize("size", [8192, 8193, 40_000, 2**20])
async def test_a_path_with_its_query_has_8_kib_at_most(gateway: GatewayProcess, line: str, size: int) -> None:
    target = f"{line}?{'7' * (size - len(line.partition(' ')[2]) - 1)}"
    found = await answers(gateway, head(target, "content-length: 0", "connection: close"))
    if size > 8192:
        assert [each[0] for each in found] in ([414], *([[]] if size > 8193 else []))  # reset, with the answer in it
        assert all("8192 bytes" in str(each[2]) for each in found)
    else:
        assert found[0][0] in (200, 400, 401)


async def test_http_1_1_names_its_host(gateway: GatewayProcess) -> None:
    for line in (b"GET /health", b"POST /v1/chat/completions"):
        ((status, _, body),) = await answers(gateway, line + b" HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        assert (status, "Host" in str(body)) == (400, True)
    ((status, _, _),) = await answers(gateway, b"GET /health HTTP/1.0\r\n\r\n")
    assert status == 200


async def test_the_many_headers_of_an_honest_client_pass(gateway: GatewayProcess, key: str, provider: Provider) -> None:
    fields = [f"x-forwarded-{number}: {'v' * 400}" for number in range(100)]
    start = head(
        "POST /v1/chat/completions",
        f"authorization: Bearer {key}",
        "content-type: application/json",
        f"content-length: {len(CHAT)}",
        "connection: close",
        *fields,
    )
    ((status, _, _),) = await answers(gateway, start + CHAT)
    assert status == 200


# -- paths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("/%61dmin/keys", "/admin%2Fkeys", "/admin%2fkeys", "/adm%69n/keys", "/admin/keys%00", "/admin/%6beys?a=b"),
        *("/v1/%2e%2e/admin/keys", "/v1%5c..%5cadmin/keys", "/admin/keys%0d%0ax", "/%6detrics", "/%"),
    ],
)
async def test_an_admin_route_has_one_path(gateway: GatewayProcess, path: str) -> None:
    admin = await gateway.key("one", "--scope", "admin")
    ((status, _, body),) = await answers(gateway, head(f"GET {path}", f"authorization: Bearer {admin}"))
    assert (status, "escape" in str(body)) == (400, True)


@pytest.mark.parametrize("path", ["//admin/keys", "/admin//keys", "/v1/../admin/keys", "/./admin/keys", "/admin/keys/"])
async def test_no_other_spelling_of_a_path_is_that_path(gateway: GatewayProcess, path: str) -> None:
    admin = await gateway.key("one", "--scope", "admin")
    fields = (f"authorization: Bearer {admin}", "connection: close", "host: evil.example")[:2]
    ((status, headers, _),) = await answers(gateway, head(f"GET {path}", *fields))
    assert (status, headers.get("location")) == (404, None)


async def test_a_model_s_name_may_be_escaped(gateway: GatewayProcess, key: str) -> None:
    fields = (f"authorization: Bearer {key}", "connection: close")
    ((status, _, body),) = await answers(gateway, head("GET /v1/models/org%2Fmodel%20of%3Aours", *fields))
    assert (status, "'org/model of:ours' does not exist" in str(body)) == (404, True)


# -- health --------------------------------------------------------------------------------------------------------


async def test_health_names_backends_to_keys_alone_and_only_their_own(gateway: GatewayProcess, key: str) -> None:
    async def health_parts(key: str) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(timeout=30, base_url=gateway.base, headers=headers) as http:
            answer = await http.get("/health")
            assert answer.status_code == 200
            parts: dict[str, Any] = answer.json()["parts"]
            return parts

    for nobody in ("", "tg-unknown"):
        assert await health_parts(nobody) == dict.fromkeys(("workers", "state", "keys", "policies", "upstream"), "ok")
    assert {"small", "theirs"} & set((await health_parts(key))["backends"]) == {"small"}
    admin = await gateway.key("one", "--scope", "admin")
    assert {"small", "theirs"} <= set((await health_parts(admin))["backends"])


# -- what a provider says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(WAITS)))
async def test_no_provider_has_a_client_wait_for_more_than_a_day(
    gateway: GatewayProcess, key: str, provider: Provider, number: int
) -> None:
    provider.script(*[Fail(status=429, retry_after=WAITS[number])] * 4)
    body = chat_body(model=f"w{number}")
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=60) as http:
        answer = await http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 429
    assert 0 < int(answer.headers.get("retry-after", 1)) <= 86_400
    assert 0 < int(answer.headers.get("retry-after-ms", 1)) <= 86_400_000


@pytest.mark.parametrize("status", [429, 503])
async def test_one_answer_does_not_take_a_backend_away_for_a_day(
    gateway: GatewayProcess, key: str, provider: Provider, status: int
) -> None:
    """Others pause it for a minute; what can go nowhere else asks it again at once."""
    provider.script(Fail(status=status, retry_after="86400"))
    body = chat_body(model=f"w{status}")
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=60) as http:
        answers = [await http.post("/v1/chat/completions", content=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [status, 200]
    assert int(answers[0].headers["retry-after"]) == 86_400
    if status == 503:
        assert f"backend w{status} gets no new requests for 60 s" in gateway.log


@pytest.mark.parametrize("said", ["999999999999", "9" * 5000, "9" * 299, "-1", "nan", "1e400", "61000.5"])
async def test_no_provider_has_a_client_wait_for_more_than_a_day_in_milliseconds(
    gateway: GatewayProcess, key: str, provider: Provider, said: str
) -> None:
    lines = f"HTTP/1.1 429 Later\r\nretry-after-ms: {said}\r\ncontent-type: application/json\r\ncontent-length: 2"
    provider.script(Raw((lines.encode() + b"\r\n\r\n{}",)))
    body = chat_body(model="w429")
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=60) as http:
        answer = await http.post("/v1/chat/completions", content=body)
    assert answer.status_code == 429
    assert 0 < int(answer.headers.get("retry-after", 1)) <= 86_400
    assert 0 < int(answer.headers.get("retry-after-ms", 1)) <= 86_400_000
