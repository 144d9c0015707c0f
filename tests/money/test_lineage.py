"""A rotated key is the same payer and owner as before: budgets, limits, reports and what belongs to it, on a gateway of
three workers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support.gateway import eventually

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180)]

CONFIG = """\
backends:
  - {{name: paid, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      price: {{input: 1, output: 1}}}}
local_model: {{enabled: false}}
"""
LIMIT = 1000
POLICIES = {
    "thrifty": "cache: {enabled: false}\n"
    f"budget: {{limit_tokens: {LIMIT}, per: key, on_exhausted: refuse, window: month}}\n",
    "slow": "cache: {enabled: false}\nlimits: {per_key: {requests_per_minute: 3}}\n",
    "owner": "cache: {enabled: false}\n",
}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("lineage") / "home", CONFIG.format(port=port), POLICIES, workers=3
    ) as process:
        yield process


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port, default=Reply(tokens=40)) as provider:
        yield provider


@dataclass(frozen=True)
class Made:
    """What `keys create` and `keys rotate` print."""

    id: str
    key: str


def create(gateway: GatewayProcess, team: str) -> Made:
    made = gateway.json("keys", "create", "--team", team)
    return Made(made["id"], made["key"])


def rotate(gateway: GatewayProcess, old: Made, *more: str) -> Made:
    made = gateway.json("keys", "rotate", old.id, *more)
    return Made(made["id"], made["key"])


async def fetch(gateway: GatewayProcess, made: Made, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {made.key}", **more.pop("headers", {})}
    async with httpx.AsyncClient(base_url=gateway.base, timeout=30) as http:
        return await http.request(method, path, headers=headers, **more)


async def ask(gateway: GatewayProcess, made: Made, text: str = "count", **headers: str) -> httpx.Response:
    body = {"model": "paid", "messages": [{"role": "user", "content": text}], "max_tokens": 40}
    return await fetch(gateway, made, "POST", "/v1/chat/completions", json=body, headers=headers)


async def spend(gateway: GatewayProcess, made: Made, requests: int) -> int:
    """Tokens that so many answers took."""
    taken = 0
    for _ in range(requests):
        answer = await ask(gateway, made)
        assert answer.status_code == 200, answer.text
        taken += answer.json()["usage"]["total_tokens"]
    return taken


async def exhaust(gateway: GatewayProcess, *made: Made) -> int:
    """Tokens of all answers that the keys still get, asked for at the same time."""

    async def until_refused(one: Made) -> int:
        taken, refused = 0, 0
        async with asyncio.timeout(60):
            while refused < 4:
                answer = await ask(gateway, one)
                if answer.status_code == 200:
                    taken, refused = taken + int(answer.json()["usage"]["total_tokens"]), 0
                else:
                    assert answer.status_code in (401, 429), answer.text
                    refused += 1
        return taken

    return sum(await asyncio.gather(*(until_refused(one) for one in made for _ in range(3))))


def by_key(gateway: GatewayProcess, team: str) -> dict[str, int]:
    """Key → tokens on the ledger."""
    rows = gateway.usage(team, by="key")["rows"]
    return {row["key"]: row["input_tokens"] + row["output_tokens"] for row in rows}


async def booked(gateway: GatewayProcess, key: str, tokens: int) -> None:
    """Once so many tokens are on the ledger for the key."""
    await eventually(lambda: asyncio.to_thread(by_key, gateway, "thrifty"), lambda found: found.get(key) == tokens)


@pytest.mark.parametrize("grace", [(), ("--grace", "1h")], ids=["at once", "with grace"])
async def test_two_rotations_in_a_row_leave_of_a_keys_budget_what_its_predecessors_did_not_spend(
    gateway: GatewayProcess, provider: Provider, grace: tuple[str, ...]
) -> None:
    first = await asyncio.to_thread(create, gateway, "thrifty")
    taken = await spend(gateway, first, 4)
    second = await asyncio.to_thread(rotate, gateway, first, *grace)
    taken += await spend(gateway, second, 4)
    third = await asyncio.to_thread(rotate, gateway, second, *grace)
    taken += await exhaust(gateway, third, *((first, second) if grace else ()))
    assert 0.9 * LIMIT < taken <= LIMIT
    await booked(gateway, first.id, taken)
    assert not {second.id, third.id} & (await asyncio.to_thread(by_key, gateway, "thrifty")).keys()


async def test_a_rotation_while_requests_run_never_overruns_the_keys_budget(
    gateway: GatewayProcess, provider: Provider
) -> None:
    provider.default = Reply(tokens=40, delay_s=0.05)
    first = await asyncio.to_thread(create, gateway, "thrifty")
    running = asyncio.create_task(exhaust(gateway, first))
    second = await asyncio.to_thread(rotate, gateway, first, "--grace", "1h")
    taken = await exhaust(gateway, second) + await running
    assert 0.9 * LIMIT < taken <= LIMIT
    await booked(gateway, first.id, taken)


async def test_a_restart_rebuilds_the_budget_of_all_keys_of_a_lineage(
    gateway: GatewayProcess, provider: Provider
) -> None:
    first = await asyncio.to_thread(create, gateway, "thrifty")
    taken = await spend(gateway, first, 4)
    second = await asyncio.to_thread(rotate, gateway, first, "--grace", "1h")
    taken += await spend(gateway, second, 4)
    await asyncio.to_thread(gateway.stop)
    shutil.rmtree(gateway.home / "data" / "valkey")  # the counters: only the ledger knows what was spent
    await asyncio.to_thread(gateway.start)
    third = await asyncio.to_thread(rotate, gateway, second, "--grace", "1h")
    taken += await exhaust(gateway, first, third)
    assert 0.9 * LIMIT < taken <= LIMIT
    await booked(gateway, first.id, taken)


async def test_a_limit_per_key_counts_what_its_predecessor_asked(gateway: GatewayProcess, provider: Provider) -> None:
    first = await asyncio.to_thread(create, gateway, "slow")
    answers = [await ask(gateway, first) for _ in range(2)]
    second = await asyncio.to_thread(rotate, gateway, first)
    answers += [await ask(gateway, second) for _ in range(3)]
    assert [answer.status_code for answer in answers].count(200) <= 4  # one more has refilled by then
    assert answers[-1].status_code == 429


async def test_what_a_key_asked_for_belongs_to_its_successor(gateway: GatewayProcess, provider: Provider) -> None:
    first = await asyncio.to_thread(create, gateway, "owner")
    answer = await ask(gateway, first, **{"idempotency-key": "once"})
    second = await asyncio.to_thread(rotate, gateway, first)
    asked = len(provider.exchanges)
    again = await ask(gateway, second, **{"idempotency-key": "once"})
    assert (again.json(), len(provider.exchanges)) == (answer.json(), asked)
    request = answer.headers["x-request-id"]
    record = await eventually(
        lambda: fetch(gateway, second, "GET", f"/v1/requests/{request}"), lambda reply: reply.status_code == 200
    )
    assert record.json()["key"] == first.id
    rated = f"/v1/requests/{request}/feedback"
    await eventually(  # another worker than the one that gave the record may not have it yet
        lambda: fetch(gateway, second, "POST", rated, json={"rating": "good"}), lambda reply: reply.status_code == 201
    )
    other = await asyncio.to_thread(create, gateway, "owner")
    assert (await fetch(gateway, other, "GET", f"/v1/requests/{request}")).status_code == 404


async def test_a_batch_goes_on_when_the_key_that_asked_for_it_is_rotated(
    gateway: GatewayProcess, provider: Provider
) -> None:
    provider.default = Reply(tokens=4, delay_s=0.25)
    first = await asyncio.to_thread(create, gateway, "owner")
    body = {"model": "paid", "messages": [{"role": "user", "content": "a line"}], "max_tokens": 4}
    line = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    lines = b"\n".join(orjson.dumps({"custom_id": f"{number}", **line}) for number in range(40))
    file = await fetch(
        gateway, first, "POST", "/v1/files", files={"file": ("lines.jsonl", lines)}, data={"purpose": "batch"}
    )
    wish = {"input_file_id": file.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = (await fetch(gateway, first, "POST", "/v1/batches", json=wish)).json()
    second = await asyncio.to_thread(rotate, gateway, first)

    async def state() -> dict[str, Any]:
        found: dict[str, Any] = (await fetch(gateway, second, "GET", f"/v1/batches/{made['id']}")).json()
        return found

    batch = await eventually(
        state, lambda batch: batch["status"] in ("completed", "failed", "expired"), within_s=90, every_s=0.2
    )
    assert batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
