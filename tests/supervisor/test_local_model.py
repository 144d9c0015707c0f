"""The packaged local model: when it runs, and that it is kept running. Real weights, so heavy."""

from __future__ import annotations

import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import orjson
import pytest

from gateway.settings.environment import variable
from gateway.settings.gateway import load_settings
from gateway.supervisor.local_model import GGUF, find_weights
from tests.supervisor.conftest import ROOT, Gateway, gone, until


@pytest.fixture
def weights() -> Path:
    """Named by THRIFTGATE_TEST_GGUF, or lying in .models of the checkout."""
    if find_spec("xllamacpp") is None:
        pytest.skip("the extra `local` is not installed")
    path = Path(variable("THRIFTGATE_TEST_GGUF") or ROOT / ".models" / GGUF)
    if not path.is_file():
        pytest.skip(f"no weights at {path}")
    return path


def ask(url: str, question: str) -> dict[str, object]:
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 4}
    request = Request(f"{url}/chat/completions", orjson.dumps(body), {"content-type": "application/json"})
    with urlopen(request, timeout=15) as reply:
        answer: dict[str, object] = orjson.loads(reply.read())
        return answer


def up(gateway: Gateway) -> bool:
    with urlopen(gateway.facts()["local_model"]["url"] + "/models", timeout=5) as reply:
        return bool(reply.status == 200)


@pytest.mark.heavy
def test_it_answers_comes_back_after_a_kill_and_leaves_with_the_gateway(gateway: Gateway, weights: Path) -> None:
    file = gateway.data / "gateway.yaml"
    file.write_text(f"local_model: {{gguf: '{weights}'}}\n")
    gateway.start(config=file).ready()
    until(lambda: up(gateway))
    facts = gateway.facts()["local_model"]
    assert gateway.worker()["told"]["local_model_url"] == facts["url"]
    usage = ask(facts["url"], "How many days are in a week?")["usage"]
    assert isinstance(usage, dict)
    assert usage["completion_tokens"] > 0
    os.kill(facts["pid"], signal.SIGKILL)
    until(lambda: gateway.facts()["local_model"]["pid"] not in (facts["pid"], None) and up(gateway))
    assert gateway.facts()["local_model"]["url"] == facts["url"]
    pid = gateway.facts()["local_model"]["pid"]
    assert gateway.process
    gateway.process.kill()
    gateway.ended()
    until(lambda: gone(pid))


@pytest.mark.heavy
def test_no_web_page_may_talk_to_it(gateway: Gateway, weights: Path) -> None:
    (gateway.data / "models").mkdir()
    shutil.copy(weights, gateway.data / "models" / GGUF)
    gateway.start().ready()
    until(lambda: up(gateway))
    request = Request(gateway.facts()["local_model"]["url"] + "/models", headers={"Origin": "http://elsewhere"})
    with urlopen(request, timeout=5) as reply:
        assert not reply.headers["Access-Control-Allow-Origin"]
    assert gateway.end()[0] == 0


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed")
@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("{}", True),
        ("local_model: {enabled: false}", False),
        ("backends: []", False),
        ("backends: [{name: far, kind: openai, model: m, base_url: 'http://10.0.0.9/v1'}]", False),
        ("backends: [{name: mine, kind: local, model: smollm2}]", True),
        ("backends: [{name: mine, kind: local, model: m, base_url: 'http://127.0.0.1:9/v1'}]", False),
        ("local_model: {gguf: /nowhere.gguf}", False),
    ],
)
def test_it_runs_when_it_is_installed_and_wanted(tmp_path: Path, config: str, found: bool) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / GGUF).write_bytes(b"GGUF")
    (tmp_path / "gateway.yaml").write_text(config)
    settings = load_settings(tmp_path / "gateway.yaml", tmp_path)
    assert (find_weights(settings) is not None) == found


def test_without_weights_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("{}")
    assert find_weights(load_settings(tmp_path / "gateway.yaml", tmp_path)) is None
