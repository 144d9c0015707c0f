"""A client's trace goes on through a running gateway, to an OTLP collector and to local servers only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider
from tests.support.waiting import until
from tests.telemetry.conftest import Receiver, attributes

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # a process starts

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
CONFIG = """\
trials: {{cache_checks: 0}}
telemetry: {{sample: 0}}
backends:
  - {{name: near, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: small,
      window_tokens: 128000, price: {{input: 1, output: 2}}}}
  - {{name: far, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: scripted, tier: hosted, location: hosted,
      window_tokens: 128000, price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int, collector: Receiver) -> Iterator[GatewayProcess]:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }
    home = tmp_path_factory.mktemp("traces") / "home"
    with GatewayProcess(
        home, CONFIG.format(port=port), {"search": "cache: {enabled: false}\n"}, environment
    ) as process:
        yield process


@pytest_asyncio.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port) as provider:
        yield provider


async def ask(gateway: GatewayProcess, **body: object) -> str:
    """The request's id."""
    headers = {"authorization": f"Bearer {await gateway.key('search')}", **TRACED}
    asked = {"messages": [{"role": "user", "content": "hello"}], **body}
    async with httpx.AsyncClient(timeout=30) as http:
        reply = await http.post(f"{gateway.base}/v1/chat/completions", json=asked, headers=headers)
    assert reply.status_code == 200
    return reply.headers["x-request-id"]


async def test_spans_and_histograms_reach_the_collector(
    gateway: GatewayProcess, provider: Provider, collector: Receiver
) -> None:
    told = {await ask(gateway, model=model, stream=True): model for model in ("near", "far")}

    def served() -> set[object]:
        """Requests whose span has the client's span as its parent."""
        spans = [span for span in collector.spans if span.parent_span_id.hex() == SPAN]
        return {attributes(span.attributes)["thriftgate.request_id"] for span in spans}

    await until(lambda: served() >= set(told) and len(collector.spans) >= 2 * len(served()))
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    name = "gen_ai.server.time_to_first_token"
    await until(lambda: len(collector.histograms(name)) == 2)
    assert {dict(key)["gen_ai.request.model"] for key in collector.histograms(name)} == {"near", "far"}


@pytest.mark.parametrize(("model", "told"), [("near", TRACED), ("far", {})])
async def test_a_provider_is_not_told_the_trace(
    gateway: GatewayProcess, provider: Provider, model: str, told: dict[str, str]
) -> None:
    await ask(gateway, model=model)
    found = {name: provider.last.header(name.encode()) for name in TRACED}
    assert found == {name: told[name].encode() if told else None for name in TRACED}
