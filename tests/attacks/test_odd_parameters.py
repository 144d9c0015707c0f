"""Parameters, ids and items of a wrong kind: each is refused with its name, and none reaches what fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Raw

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: small, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-small, tier: small,
      window_tokens: 8000, price: {{input: 0.1, output: 0.4}}}}
  - {{name: claude, kind: anthropic, base_url: "http://127.0.0.1:{port}/v1", model: scripted-claude, tier: large,
      window_tokens: 8000, price: {{input: 0.1, output: 0.4}}}}
  - {{name: endless, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted-endless, tier: large,
      price: {{input: 0.1, output: 0.4}}}}
local_model: {{enabled: false}}
admin_api: true
"""
MANY = "9" * 5000
"""More digits than Python makes a number of."""
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("odd") / "home"
    with GatewayProcess(
        home, CONFIG.format(port=port), {"one": "data: {store_prompts: true}\npassthrough: [images]\n"}
    ) as process:
        yield process


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    key = await gateway.key("one", "--scope", "inference", "--scope", "usage", "--scope", "admin")
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/usage?since=999999d", "since"),
        ("/v1/usage?until=0001-01-01", "until"),
        ("/v1/usage?since=9999-12-31T23:59-12:00", "since"),
        ("/v1/usage?since=soon", "since"),
        ("/v1/usage?by=nothing", "by"),
        ("/v1/usage?savings=perhaps", "savings"),
        ("/v1/batches?purpose=x", "purpose"),
        *[
            (f"{path}?limit={limit}", "limit")
            for path in ("/v1/batches", "/v1/files", "/admin/alerts")
            for limit in (MANY, "0", "-1", "1.5", "\u00b2", "\u0661")
        ],
        ("/admin/usage?since=999999d", "since"),
    ],
    ids=lambda value: value[:40],
)
async def test_a_query_parameter_of_a_wrong_kind_is_a_400_with_its_name(
    http: httpx.AsyncClient, path: str, param: str
) -> None:
    answer = await http.get(path)
    assert answer.status_code == 400, answer.text[:300]
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("path", [f"/v1/messages/batches?limit={MANY}", f"/v1/models?limit={MANY}"])
async def test_so_it_is_on_anthropics_routes(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path, headers={"anthropic-version": "2023-06-01"})
    assert answer.status_code == 400, answer.text[:300]
    assert "limit must be a whole number" in answer.json()["error"]["message"]


@pytest.mark.parametrize("expires", ["99999999999d", 1e300, [1], "x" * 5])
async def test_a_key_cannot_be_made_for_longer_than_a_date_can_say(http: httpx.AsyncClient, expires: Any) -> None:
    answer = await http.post("/admin/keys", json={"team": "one", "expires": expires})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "expires")


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference", "id": ["x"]}, "input[0].id"),
        ({"type": "item_reference", "id": {}}, "input[0].id"),
        ({"type": "item_reference"}, "input[0].id"),
        ({"type": ["x"]}, "input[0]"),
    ],
)
async def test_an_item_that_names_nothing_is_a_400_with_its_place(
    http: httpx.AsyncClient, item: Any, param: str
) -> None:
    answer = await http.post("/v1/responses", json={"model": "small", "input": [item]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text[:300]


@pytest.mark.parametrize("items", [[SEARCH], [REASONING], [SEARCH, REASONING], []])
async def test_an_answer_of_nothing_but_searches_and_reasoning_is_served_and_continued(
    http: httpx.AsyncClient, provider: Provider, items: list[Any]
) -> None:
    said = orjson.dumps(
        {
            "id": "resp_odd", "object": "response", "created_at": 1, "status": "completed", "model": "m",
            "output": items, "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        }
    )  # fmt: skip
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(said)
    provider.script(Raw((head + said,)))
    first = await http.post("/v1/responses", json={"model": "small", "input": "hello"})
    assert (first.status_code, first.json()["output"]) == (200, items), first.text[:300]
    more = {"input": "and?", "previous_response_id": first.json()["id"]}
    for model in ("small", "claude"):
        assert (await http.post("/v1/responses", json={"model": model, **more})).status_code == 200
    assert (await http.get(f"/v1/responses/{first.json()['id']}/input_items")).status_code == 200


@pytest.mark.parametrize("item", [SEARCH, REASONING])
async def test_input_of_nothing_that_a_model_could_read_is_never_a_500(
    http: httpx.AsyncClient, provider: Provider, item: Any
) -> None:
    assert (await http.post("/v1/responses", json={"model": "small", "input": [item]})).status_code == 200
    answer = await http.post("/v1/responses", json={"model": "claude", "input": [item]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input"), answer.text[:300]


@pytest.mark.parametrize("count", [129, 2**53 + 1, 2**63 - 1, 2**64 - 1])
async def test_more_pictures_than_any_server_makes_are_refused(http: httpx.AsyncClient, count: int) -> None:
    answer = await http.post("/v1/images/generations", json={"model": "small", "prompt": "a cat", "n": count})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")
    parts = {"model": (None, "small"), "prompt": (None, "a cat"), "n": (None, str(count)), "image": ("a.png", b"x")}
    answer = await http.post("/v1/images/edits", files=parts)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


@pytest.mark.parametrize("limit", [2**40, 2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize(
    ("path", "field", "asked"),
    [
        ("/v1/chat/completions", "max_tokens", {"messages": [{"role": "user", "content": "hi"}], "n": 128}),
        ("/v1/chat/completions", "max_completion_tokens", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/responses", "max_output_tokens", {"input": "hi"}),
        ("/v1/completions", "max_tokens", {"prompt": ["hi"] * 9, "n": 14}),
        ("/v1/messages", "max_tokens", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
async def test_a_limit_without_end_limits_nothing(
    http: httpx.AsyncClient, port: int, path: str, field: str, asked: dict[str, Any], limit: int
) -> None:
    async with Provider(port=port):
        answer = await http.post(path, json={"model": "endless", field: limit, **asked})
    assert answer.status_code == 200, answer.text[:300]
