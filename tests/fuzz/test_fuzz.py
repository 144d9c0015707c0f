"""A while of fuzzing in every run of the heavy tests, each with another seed, which is printed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom

import httpx
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.policy.load import PolicySet, reload_policies
from gateway.settings.gateway import Ceilings
from tests.e2e.gateway_process import GatewayProcess, free_port
from tests.fakes.provider import Provider
from tests.fuzz.mutate import mutated, spoiled
from tests.fuzz.run import CONFIG, POLICY, Found, WrongProvider, fuzz

SECONDS, AT_ONCE = 25.0, 8
SEED = int(os.environ.get("FUZZ_SEED") or SystemRandom().randrange(2**31))
GOOD = {
    "team": "one",
    "models": {"fast": "small"},
    "cache": {"enabled": True, "ttl": "1h"},
    "budget": [{"limit_usd": 5, "window": "month", "timezone": "Europe/Madrid", "alerts": ["50%", "forecast"]}],
    "limits": {"requests_per_minute": 60},
    "data": {"hosted": "forbidden", "forward": ["files"]},
}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    config = CONFIG.format(port=port)
    with GatewayProcess(tmp_path_factory.mktemp("fuzz") / "home", config, {"one": POLICY, "two": ""}) as process:
        yield process


@pytest.mark.heavy
@pytest.mark.timeout(240)
async def test_whatever_clients_and_providers_send_the_gateway_has_no_failure_of_its_own(
    gateway: GatewayProcess, port: int
) -> None:
    print(f"FUZZ_SEED={SEED}")
    key = await gateway.key("one", "--scope", "inference", "--scope", "usage", "--scope", "admin")
    found = Found()
    async with WrongProvider(Random(SEED), 0.5, port=port):
        await fuzz(gateway, key, SEED, seconds=SECONDS, at_once=AT_ONCE, found=found)
    print(dict(found.statuses))
    assert found.failures == []
    assert "Traceback" not in gateway.log
    assert found.statuses["200"] > 0
    other = await gateway.key("two")
    async with Provider(port=port), httpx.AsyncClient(timeout=60) as http:
        asked = {"model": "small", "messages": [{"role": "user", "content": "Is anybody there?"}]}
        headers = {"authorization": f"Bearer {other}"}
        # Backends that answered nonsense rest for a while.
        for _ in range(60):
            answer = await http.post(f"{gateway.base}/v1/chat/completions", json=asked, headers=headers)
            if answer.status_code == 200:
                break
        assert answer.status_code == 200


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random=st.randoms(use_true_random=False), bytewise=st.booleans())
def test_no_policy_file_ends_reloading(random: Random, bytewise: bool) -> None:
    text = yaml.safe_dump(GOOD if bytewise else mutated(random, GOOD), allow_unicode=True)
    content = text.encode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one.yaml").write_bytes(spoiled(random, content) if bytewise else content)
        (folder / "two.yaml").write_text("team: two\ncache: {enabled: false}\n")
        fresh, _ = reload_policies([folder], Ceilings(), PolicySet())
        assert not fresh.policies["two"].cache.enabled
