"""Parts die or freeze under a running gateway: it goes on answering, by the declared rule, and says so."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.state.redis.embedded import EmbeddedServer
from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider, Reply
from tests.support import waiting

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: only, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: large,
      window_tokens: 8000, price: {{input: 1, output: 10}}}}
local_model: {{enabled: false}}
requests: {{drain: 10s}}
"""
BUDGET = "cache: {enabled: false}\nbudget: {limit_usd: 10, window: day%s}\n"
POLICIES = {
    "plain": "cache: {enabled: false}\n",
    "limited": "limits: {requests_per_minute: 5000}\n",
    "strict": BUDGET % "",
    "known": BUDGET % "",
    "lenient": BUDGET % ", on_state_loss: allow",
}


def gateway_in(home: Path, port: int, more: str = "") -> GatewayProcess:
    return GatewayProcess(home, CONFIG.format(port=port) + more, POLICIES)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def sturdy(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    """One gateway that the tests of this file maltreat in turn."""
    with gateway_in(tmp_path_factory.mktemp("sturdy") / "home", port) as process:
        yield process


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port) as provider:
        yield provider


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """Gives an answer 10 s on a busy machine: what waits for a part that is away has failed."""
    async with httpx.AsyncClient(timeout=10) as client:
        yield client


def body(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "only", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


async def ask(http: httpx.AsyncClient, gateway: GatewayProcess, team: str, text: str = "hello") -> httpx.Response:
    headers = {"authorization": f"Bearer {await gateway.key(team)}"}
    return await http.post(f"{gateway.base}/v1/chat/completions", json=body(text), headers=headers)


until = partial(waiting.until, not_yet=(OSError, ValueError, httpx.HTTPError))


async def is_draining(gateway: GatewayProcess) -> bool:
    """It says so, or takes no new connection any more."""
    async with httpx.AsyncClient(timeout=30) as http:
        try:
            return (await http.get(f"{gateway.base}/health/ready")).status_code == 503
        except httpx.ConnectError:
            return True


async def state_is(http: httpx.AsyncClient, gateway: GatewayProcess, how: str) -> bool:
    return bool((await http.get(f"{gateway.base}/health")).json()["parts"]["state"] == how)


# -- the state server ----------------------------------------------------------------------------------------------


async def test_a_killed_state_server_costs_no_request_and_comes_back(
    sturdy: GatewayProcess, provider: Provider, http: httpx.AsyncClient
) -> None:
    await sturdy.key("limited")
    killed = sturdy.facts["valkey"]["pid"]
    os.kill(killed, signal.SIGKILL)
    degraded = set()
    for number in range(30):
        reply = await ask(http, sturdy, "limited", f"question {number}")
        assert reply.status_code == 200, reply.text
        degraded.add(reply.headers.get("x-thriftgate-degraded", ""))
        await asyncio.sleep(0.02)
    assert degraded <= {"", "state"}
    assert "state" in degraded
    await until(lambda: sturdy.facts["valkey"]["pid"] not in (None, killed))
    await until(lambda: state_is(http, sturdy, "ok"))
    reply = await ask(http, sturdy, "limited", "back again")
    assert (reply.status_code, reply.headers.get("x-thriftgate-degraded")) == (200, None)


async def test_a_frozen_state_server_holds_up_no_request(
    sturdy: GatewayProcess, provider: Provider, http: httpx.AsyncClient
) -> None:
    await sturdy.key("limited")
    pid = sturdy.facts["valkey"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        degraded, took = [], []
        for number in range(25):
            began = time.monotonic()
            reply = await ask(http, sturdy, "limited", f"while frozen {number}")
            assert reply.status_code == 200, reply.text
            took.append(time.monotonic() - began)
            degraded.append(reply.headers.get("x-thriftgate-degraded"))
            await asyncio.sleep(0.05)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "state" in degraded
    assert statistics.median(took) < 1.0
    await until(lambda: state_is(http, sturdy, "ok"))

    async def recovered() -> bool:
        reply = await ask(http, sturdy, "limited", "thawed")
        assert reply.status_code == 200
        return "x-thriftgate-degraded" not in reply.headers

    await until(recovered)  # the counters report in rounds


async def test_a_hard_budget_follows_its_rule_while_the_state_is_frozen(
    tmp_path: Path, port: int, provider: Provider, http: httpx.AsyncClient
) -> None:
    """On a state server of the operator's own, that nobody starts again."""
    server = EmbeddedServer(tmp_path / "state")
    await asyncio.to_thread(server.start)
    gateway = gateway_in(tmp_path / "home", port, f"state: {{redis_url: '{server.url}'}}\n")
    await asyncio.to_thread(gateway.start)
    try:
        await asyncio.gather(*(gateway.key(team) for team in ("known", "strict", "lenient")))
        assert (await ask(http, gateway, "known")).status_code == 200
        await asyncio.sleep(0.6)  # in which the worker leases ahead of what this team seems to need
        assert server.pid
        os.kill(server.pid, signal.SIGSTOP)
        await until(lambda: state_is(http, gateway, "down"))

        allowed = await ask(http, gateway, "lenient")
        assert (allowed.status_code, allowed.headers["x-thriftgate-degraded"]) == (200, "state")
        for team in ("strict", "strict"):
            refused = await ask(http, gateway, team)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (429, "insufficient_quota")
            assert "on_state_loss" in error["message"]
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["x-thriftgate-degraded"] == "state"
        assert (await ask(http, gateway, "known")).status_code == 200, "it had a lease in hand"

        os.kill(server.pid, signal.SIGCONT)
        await until(lambda: state_is(http, gateway, "ok"))
        assert (await ask(http, gateway, "strict")).status_code == 200
        assert await asyncio.to_thread(gateway.stop) == 0
    finally:
        if server.pid:
            os.kill(server.pid, signal.SIGCONT)
        await asyncio.to_thread(gateway.stop)
        await asyncio.to_thread(server.stop)
    total = gateway.usage("lenient")["total"]
    assert total["requests"] == 1, "what was allowed without the state is on the ledger all the same"


# -- the processes -------------------------------------------------------------------------------------------------


async def test_a_killed_worker_is_replaced_and_requests_go_on(
    sturdy: GatewayProcess, provider: Provider, http: httpx.AsyncClient
) -> None:
    await sturdy.key("plain")
    (killed,) = sturdy.facts["workers"]
    os.kill(killed, signal.SIGKILL)
    await until(lambda: sturdy.facts["workers"] not in ([killed], []))

    async def answered() -> bool:
        return (await ask(http, sturdy, "plain")).status_code == 200

    await until(answered)
    for number in range(5):
        assert (await ask(http, sturdy, "plain", f"again {number}")).status_code == 200


async def test_sighup_reloads_the_policies_in_every_worker(sturdy: GatewayProcess) -> None:
    assert sturdy.process
    before = sturdy.log.count("policies reloaded")
    sturdy.process.send_signal(signal.SIGHUP)
    await until(lambda: sturdy.log.count("policies reloaded") >= before + len(sturdy.facts["workers"]))
    assert sturdy.process.poll() is None


async def test_sigterm_lets_an_open_stream_finish_and_takes_no_new_request(
    tmp_path: Path, port: int, provider: Provider, http: httpx.AsyncClient
) -> None:
    gateway = gateway_in(tmp_path / "home", port)
    await asyncio.to_thread(gateway.start)
    headers = {"authorization": f"Bearer {await gateway.key('plain')}"}
    url = f"{gateway.base}/v1/chat/completions"
    provider.script(Reply(tokens=60, drip_s=0.04))
    text, new = "", 0
    async with http.stream("POST", url, json=body(stream=True), headers=headers) as reply:
        async for line in reply.aiter_lines():
            text += line
            if "t3 " in line:
                assert gateway.process
                gateway.process.terminate()
                await until(lambda: is_draining(gateway))
                async with httpx.AsyncClient(timeout=30) as other:
                    try:
                        new = (await other.post(url, json=body(), headers=headers)).status_code
                    except httpx.ConnectError:
                        new = 503
    assert "t59 " in text
    assert text.endswith("[DONE]")
    assert new == 503
    assert len(provider.exchanges) == 1
    assert await asyncio.to_thread(gateway.stop) == 0
    total = await asyncio.to_thread(gateway.usage, "plain")
    assert (total["total"]["requests"], total["total"]["output_tokens"], total["total"]["interrupted"]) == (1, 60, 0)


async def test_a_stream_longer_than_the_drain_is_cut_and_billed_for_what_came(
    tmp_path: Path, port: int, provider: Provider
) -> None:
    gateway = gateway_in(tmp_path / "home", port)
    config = (tmp_path / "home" / "gateway.yaml").read_text().replace("drain: 10s", "drain: 0.5s")
    (tmp_path / "home" / "gateway.yaml").write_text(config)
    await asyncio.to_thread(gateway.start)
    provider.script(Reply(tokens=1000, drip_s=0.05))
    text = ""
    headers = {"authorization": f"Bearer {await gateway.key('plain')}"}
    async with httpx.AsyncClient(timeout=30, headers=headers) as client:
        url = f"{gateway.base}/v1/chat/completions"
        async with client.stream("POST", url, json=body(stream=True)) as reply:
            try:
                async for line in reply.aiter_lines():
                    text += line
                    if "t3 " in line:
                        assert gateway.process
                        gateway.process.terminate()
            except httpx.RemoteProtocolError:
                text += "<cut>"
    assert text.endswith("<cut>")
    assert "[DONE]" not in text
    assert await asyncio.to_thread(gateway.stop) == 0
    total = (await asyncio.to_thread(gateway.usage, "plain"))["total"]
    assert (total["requests"], total["interrupted"]) == (1, 1)
    assert 5 <= total["output_tokens"] <= provider.last.tokens_sent + 1


async def test_a_connection_that_was_kept_is_served_once_more_while_draining(
    tmp_path: Path, port: int, provider: Provider
) -> None:
    gateway = gateway_in(tmp_path / "home", port)
    await asyncio.to_thread(gateway.start)
    headers = {"authorization": f"Bearer {await gateway.key('plain')}"}
    url = f"{gateway.base}/v1/chat/completions"
    async with httpx.AsyncClient(timeout=30, headers=headers) as kept, httpx.AsyncClient(headers=headers) as other:
        assert (await kept.post(url, json=body())).status_code == 200
        provider.script(Reply(tokens=60, drip_s=0.05))
        async with other.stream("POST", url, json=body(stream=True)) as reply:
            assert gateway.process
            gateway.process.terminate()
            await until(lambda: is_draining(gateway))
            late = await kept.post(url, json=body())
            assert (late.status_code, late.headers["connection"]) == (200, "close")
            assert (await reply.aread()).endswith(b"[DONE]\n\n")
    assert await asyncio.to_thread(gateway.stop) == 0


# -- starts that cannot succeed ------------------------------------------------------------------------------------


def test_a_second_gateway_on_the_same_data_is_refused(sturdy: GatewayProcess) -> None:
    done = sturdy.run("serve", "--port", "0", check=False)
    assert done.returncode == 2
    assert f"another gateway (pid {sturdy.facts['pid']}) runs on this directory" in done.stderr
    assert "--data-dir" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told(sturdy: GatewayProcess, tmp_path: Path) -> None:
    done = gateway_in(tmp_path / "home", 1).run("serve", "--port", str(sturdy.port), check=False)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{sturdy.port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_a_policy_is_told_with_file_and_line(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "home", "backends: []\n", {"sales": "budget:\n  limit_usd: 0\n"})
    done = gateway.run("serve", "--port", "0", check=False)
    assert done.returncode == 2
    assert f"{gateway.folder}/sales.yaml:3: budget.limit_usd: must be above 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_the_operators_file_is_told_with_file_and_line(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "home", "listen: {port: 8080}\nbackends: []\nlocal_modle: {}\n")
    done = gateway.run("serve", "--port", "0", check=False)
    assert done.returncode == 2
    assert "gateway.yaml:3: local_modle: unknown key" in done.stderr


async def test_without_a_backend_the_refusal_says_what_to_do(tmp_path: Path, http: httpx.AsyncClient) -> None:
    gateway = GatewayProcess(tmp_path / "home", "backends: []\n")
    await asyncio.to_thread(gateway.start)
    try:
        headers = {"authorization": f"Bearer {await gateway.key('anyone')}"}
        for model in ("auto", "gpt-4o"):
            reply = await http.post(
                f"{gateway.base}/v1/chat/completions", json=body() | {"model": model}, headers=headers
            )
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (503, "no_backend_configured")
            assert "backends:" in error["message"]
            assert "OPENAI_API_KEY" in error["message"]
            assert reply.headers["x-should-retry"] == "false"
        answer = await http.get(f"{gateway.base}/health/ready")
        assert answer.status_code == 503
        assert "no backend is configured" in answer.json()["why"]
        assert (await http.get(f"{gateway.base}/health")).json()["parts"]["upstream"] == "no backend is configured"
        assert gateway.log.count("no backend is configured, so") == 1
    finally:
        assert await asyncio.to_thread(gateway.stop) == 0
