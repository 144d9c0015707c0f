"""Budgets of every level as clients of every dialect meet them, over a real gateway of several workers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import orjson
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.gateway import eventually, usage_total
from tests.support.naming import RUNS, for_each_run, unique
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]

CONFIG = """\
backends:
  - {{name: chat, kind: openai, base_url: "http://127.0.0.1:{chat}/v1", model: scripted-chat, tier: large,
      dialects: [openai_chat, openai_completions], price: {{input: 1, output: 1}}}}
  - {{name: responses, kind: openai, base_url: "http://127.0.0.1:{chat}/v1", model: scripted-responses, tier: large,
      dialects: [openai_responses], price: {{input: 1, output: 1}}}}
  - {{name: claude, kind: anthropic, base_url: "http://127.0.0.1:{claude}/v1", model: scripted-claude, tier: large,
      price: {{input: 1, output: 1}}}}
  - {{name: ours, kind: openai, base_url: "http://127.0.0.1:{chat}/v1", model: scripted-ours, tier: small,
      price: {{input: 0, output: 0}}}}
organisations:
  acme-1: {{budget: {{limit_tokens: 300, window: day}}}}
  acme-2: {{budget: {{limit_tokens: 300, window: day}}}}
  acme-3: {{budget: {{limit_tokens: 300, window: day}}}}
local_model: {{enabled: false}}
"""
POLICIES = {
    "cut": "budget: {limit_tokens: 150, per: key, on_exhausted: truncate, window: day, name: trial}\n",
    "kind": "budget: {limit_tokens: 90, per: key, on_exhausted: downgrade, window: day}\n",
    "strict": "budget: {limit_tokens: 90, per: key, on_exhausted: refuse, window: day}\n",
    "users": "cache: {enabled: false}\nbudget: {limit_tokens: 90, per: end_user, window: day}\n",
    **for_each_run(
        {
            "soft": "cache: {enabled: false}\nbudget: {limit_tokens: 20, hard: false, window: day, name: hint}\n",
            "crowd": "cache: {enabled: false}\nbudget: {limit_tokens: 3000, on_exhausted: truncate, window: month}\n",
        }
    ),
    **{
        f"{team}-{run}": f"organisation: acme-{run}\ncache: {{enabled: false}}\n"
        for team in ("one", "other")
        for run in range(1, RUNS + 1)
    },
}
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_completions": "/v1/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("chat", "claude")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("budgets") / "home", CONFIG.format(**ports), POLICIES, workers=2
    ) as process:
        yield process


@pytest.fixture
async def chat(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["chat"]) as provider:
        yield provider


@pytest.fixture
async def claude(ports: dict[str, int]) -> AsyncIterator[Provider]:
    async with Provider(port=ports["claude"]) as provider:
        yield provider


def question(dialect: str, model: str, text: str = "count", *, stream: bool = True, **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"model": model, "stream": stream, **more}
    if dialect == "openai_responses":
        return {**said, "input": text}
    if dialect == "openai_completions":
        return {**said, "prompt": text}
    if dialect == "anthropic_messages":
        said["max_tokens"] = more.get("max_tokens", 1000)
    elif stream:
        said["stream_options"] = {"include_usage": True}
    return {**said, "messages": [{"role": "user", "content": text}]}


async def ask(gateway: GatewayProcess, key: str, dialect: str, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=gateway.base, timeout=20) as http:
        return await http.post(PATHS[dialect], json=body, headers={"authorization": f"Bearer {key}"})


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [orjson.loads(line) for line in lines if line != "[DONE]"]


def why_it_ended(dialect: str, response: httpx.Response) -> tuple[str, int]:
    """And how many tokens the client is told that the answer has."""
    said = events(response)
    match dialect:
        case "openai_chat":
            assert response.text.endswith("data: [DONE]\n\n")
            (finish,) = [each["choices"][0]["finish_reason"] for each in said if each.get("choices")][-1:]
            return finish, said[-1]["usage"]["completion_tokens"]
        case "openai_completions":
            assert response.text.endswith("data: [DONE]\n\n")
            return said[-1]["choices"][0]["finish_reason"], len(said) - 1
        case "openai_responses":
            last = said[-1]
            assert last["type"] == "response.incomplete"
            assert last["response"]["status"] == "incomplete"
            told = "".join(each["delta"] for each in said if each["type"] == "response.output_text.delta")
            assert last["response"]["output"][-1]["content"][0]["text"] == told
            numbers = [each["sequence_number"] for each in said]
            assert numbers == sorted(set(numbers))
            return last["response"]["incomplete_details"]["reason"], last["response"]["usage"]["output_tokens"]
    kinds = [each["type"] for each in said]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    return said[-2]["delta"]["stop_reason"], said[-2]["usage"]["output_tokens"]


@pytest.mark.parametrize("backend", ["chat", "responses", "claude"])
@pytest.mark.parametrize(
    ("dialect", "reason"),
    [("openai_chat", "length"), ("openai_responses", "max_output_tokens"), ("anthropic_messages", "max_tokens")],
)
async def test_an_answer_is_cut_at_the_limit_as_its_dialect_ends_a_long_one(
    gateway: GatewayProcess, chat: Provider, claude: Provider, dialect: str, reason: str, backend: str
) -> None:
    key = await gateway.key("cut", "--name", unique("cut"))
    provider = claude if backend == "claude" else chat
    provider.script(Reply(tokens=400, drip_s=0.003))
    response = await ask(gateway, key, dialect, question(dialect, backend))
    assert response.status_code == 200
    why, told = why_it_ended(dialect, response)
    assert why == reason
    assert 100 < told < 150
    await provider.settled()
    sent = provider.last.tokens_sent
    assert told <= sent <= 150
    assert provider.last.hung_up or provider.last.whole  # at the limit that it was told, it may have ended by itself
    refused = await ask(gateway, key, dialect, question(dialect, backend, "more", max_tokens=1000))
    assert refused.status_code == 429
    assert "called trial" in refused.json()["error"]["message"]
    assert "per: key" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) > 0


async def test_a_legacy_completion_is_cut_too(gateway: GatewayProcess, chat: Provider) -> None:
    key = await gateway.key("cut", "--name", unique("legacy"))
    chat.script(Reply(tokens=400, drip_s=0.003))
    response = await ask(gateway, key, "openai_completions", question("openai_completions", "chat"))
    why, told = why_it_ended("openai_completions", response)
    assert why == "length"
    assert 100 < told < 150


async def test_what_was_cut_is_billed_as_it_was_sent_told_in_its_record_and_not_cached(
    gateway: GatewayProcess, chat: Provider
) -> None:
    key = await gateway.key("cut", "--name", unique("record"))
    chat.script(Reply(tokens=400, drip_s=0.003))
    response = await ask(gateway, key, "openai_chat", question("openai_chat", "chat", temperature=0))
    sent = chat.last.tokens_sent
    record = await flight(gateway, key, response.headers["x-request-id"])
    (cap,) = [note["tokens"] for note in record["notes"] if note["what"] == "output capped"]
    assert response.headers["x-thriftgate-output-cap"] == str(cap)
    (attempt,) = record["attempts"]
    assert attempt["outcome"] == "ok"
    assert attempt["output_tokens"] == sent == cap
    again = await ask(gateway, key, "openai_chat", question("openai_chat", "chat", temperature=0))
    assert again.headers["x-thriftgate-cache"] != "exact"


async def flight(gateway: GatewayProcess, key: str, request_id: str) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=30, base_url=gateway.base, headers={"authorization": f"Bearer {key}"}) as http:

        async def fetch() -> dict[str, Any]:
            found: dict[str, Any] = (await http.get(f"/v1/requests/{request_id}")).json()
            return found

        # Before the recorder's own, there may be the ledger's, which is shorter.
        return await eventually(fetch, lambda record: record.get("notes"))


@pytest.mark.parametrize("team", ["kind", "strict"])
async def test_what_is_free_is_served_to_who_has_spent_it_all_unless_the_rule_is_refuse(
    gateway: GatewayProcess, chat: Provider, team: str
) -> None:
    key = await gateway.key(team, "--name", unique(team))
    plain = question("openai_chat", "chat", unique("what is free?"), stream=False, temperature=0, max_tokens=20)
    chat.script(Reply(tokens=20, usage="wrong"))  # ten times what it was asked for, so that the budget is spent
    assert (await ask(gateway, key, "openai_chat", plain)).status_code == 200
    dear = question("openai_chat", "chat", "something else", stream=False, max_tokens=20)
    await refused(gateway, key, dear)  # by either worker, once it has heard what was spent
    free = question("openai_chat", "ours", "something else", stream=False, max_tokens=20)
    answers = [await ask(gateway, key, "openai_chat", body) for body in (dear, plain, free)]
    assert [answer.status_code for answer in answers] == ([429, 200, 200] if team == "kind" else [429] * 3)
    error = answers[0].json()["error"]
    assert (error["code"], error["type"]) == ("insufficient_quota", "insufficient_quota")
    assert ("cost nothing are served" in error["message"]) == (team == "kind")


async def refused(gateway: GatewayProcess, key: str, body: dict[str, Any]) -> httpx.Response:
    """The first refusal of the request, after a dozen in a row: either worker refuses it."""

    async def fetch() -> list[httpx.Response]:
        return [await ask(gateway, key, "openai_chat", body) for _ in range(12)]

    return (await eventually(fetch, lambda replies: {reply.status_code for reply in replies} == {429}))[0]


async def test_a_soft_budget_is_told_by_a_header(gateway: GatewayProcess, chat: Provider, run: int) -> None:
    key = await gateway.key(f"soft-{run}")
    body = question("openai_chat", "chat", stream=False)
    chat.script(*[Reply(tokens=30)] * 2)
    first = await ask(gateway, key, "openai_chat", body)
    assert "x-thriftgate-over-budget" not in first.headers
    second = await eventually(
        lambda: ask(gateway, key, "openai_chat", body), lambda reply: "x-thriftgate-over-budget" in reply.headers
    )
    assert (second.status_code, second.headers["x-thriftgate-over-budget"]) == (200, "hint")


async def test_each_end_user_has_a_budget_whatever_the_dialect_calls_them(
    gateway: GatewayProcess, chat: Provider
) -> None:
    key = await gateway.key("users", "--name", unique("users"))
    ann, bob = unique("ann"), unique("bob")
    names = [("openai_chat", {"user": ann}), ("openai_chat", {"safety_identifier": ann})]
    names += [("anthropic_messages", {"metadata": {"user_id": ann}})]
    statuses = []
    for dialect, name in (*names, ("openai_chat", {"user": bob})):
        chat.script(Reply(tokens=40))
        body = question(dialect, "chat", stream=False, max_tokens=40, **name)
        statuses.append((await ask(gateway, key, dialect, body)).status_code)
    assert statuses == [200, 429, 429, 200]


async def test_teams_of_one_organisation_share_its_budget(gateway: GatewayProcess, chat: Provider, run: int) -> None:
    one, other = await gateway.key(f"one-{run}"), await gateway.key(f"other-{run}")
    chat.script(Reply(tokens=30, usage="wrong"))
    body = question("openai_chat", "chat", stream=False, max_tokens=30)
    assert (await ask(gateway, one, "openai_chat", body)).status_code == 200
    told = (await refused(gateway, other, body)).json()["error"]["message"]
    assert f"Organisation acme-{run} has spent its budget of 300 tokens" in told


async def test_what_a_killed_worker_had_delivered_counts_and_what_it_held_is_free(
    gateway: GatewayProcess, chat: Provider, run: int
) -> None:
    """Streams of 100 tokens over two workers, one of which is killed; then the rest of the budget is used up."""
    key = await gateway.key(f"crowd-{run}")
    chat.default = Reply(tokens=100, drip_s=0.02)

    received = 0

    async def one() -> int:
        nonlocal received
        asked = question("openai_chat", "chat", max_tokens=1000)
        headers = {"authorization": f"Bearer {key}"}
        try:
            async with (
                httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30) as http,
                http.stream("POST", PATHS["openai_chat"], json=asked) as reply,
            ):
                async for line in reply.aiter_lines():
                    received += '"content":"t' in line.replace(" ", "")
                return reply.status_code
        except httpx.HTTPError:
            return 0

    streams = [asyncio.ensure_future(one()) for _ in range(12)]
    await until(lambda: sum(exchange.tokens_sent for exchange in list(chat.exchanges)) >= 300)
    os.kill(gateway.facts["workers"][0], signal.SIGKILL)
    await asyncio.gather(*streams)
    chat.default = Reply(tokens=100, drip_s=0.002)  # those that follow wait for each other's holds
    async with asyncio.timeout(100):
        while (await asyncio.gather(*(one() for _ in range(6)))).count(429) < 6:
            pass
    sent = sum(exchange.tokens_sent for exchange in chat.exchanges)
    total = await usage_total(gateway, f"crowd-{run}", attempts=len(chat.exchanges))
    assert 0.95 * 3000 < total["input_tokens"] + total["output_tokens"] <= 3000
    # What was on its way to the killed worker is lost; the length of a killed stream's events is known to a few bytes.
    assert received - 4 * len(streams) <= total["output_tokens"] <= sent + 4 * len(streams)
