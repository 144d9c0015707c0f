from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson

from gateway.cache.verifier.features import NAMES
from gateway.cache.verifier.verify import WEIGHTS, Scorer
from training.verifier import EITHER, MIXED, TRUTH, Pair, Table, fit, half_of, labelled_pairs, open_pairs, own_pairs


def test_what_was_fitted_scores_as_it_was_taught() -> None:
    chance = np.random.default_rng(0)
    rows = chance.normal(size=(400, len(NAMES)))
    labels = (rows[:, 0] > rows[:, 1]).astype(float)
    table = Table(rows, labels, np.ones(400), np.zeros(400, dtype=np.int64))
    scorer = Scorer(orjson.loads(orjson.dumps(fit(table))))
    right = [(scorer.score(list(row)) > 0.5) == bool(label) for row, label in zip(rows, labels, strict=True)]
    assert np.mean(right) > 0.95


def test_the_packaged_weights_belong_to_the_features() -> None:
    assert tuple(orjson.loads(WEIGHTS.read_bytes())["names"]) == NAMES


def test_our_own_pairs_contradict_themselves_nowhere() -> None:
    pairs = list(own_pairs())
    same = {(pair.stored, pair.asked) for pair in pairs if pair.label}
    assert not same & {(pair.stored, pair.asked) for pair in pairs if not pair.label}


def test_pairs_in_two_languages_teach_nothing(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_bytes(
        orjson.dumps({"a": "x", "b": "y", "label": 1, "set": "mixed"})
        + b"\n"
        + orjson.dumps({"a": "x", "b": "z", "label": 0, "set": "swap_neg"})
    )
    assert list(labelled_pairs([file])) == [Pair("x", "z", 0)]


def test_a_model_is_never_fitted_on_the_half_that_it_is_judged_on() -> None:
    halves = np.array([0, 1, EITHER, MIXED])
    table = Table(np.arange(4.0)[:, None], np.zeros(4), np.ones(4), halves)
    assert table.without(0).halves.tolist() == [1, EITHER]
    assert table.without(1).halves.tolist() == [0, EITHER]


def test_a_pair_is_of_the_half_of_its_clusters(tmp_path: Path) -> None:
    names = {half: next(name for name in map(str, range(99)) if half_of(name) == half) for half in (0, 1)}
    texts = [{"text": f"t{half}", "cluster": name} for half, name in names.items()]
    (tmp_path / "texts.jsonl").write_bytes(b"\n".join(map(orjson.dumps, texts)))
    for source in (*TRUTH, "own_edits"):
        (tmp_path / f"{source if source == 'own_edits' else source + '_pairs'}.jsonl").write_bytes(b"")
    rows = [
        {"a": "t0", "b": "t0", "label": 1},
        {"a": "t0", "b": "t1", "label": 0},
        {"a": "t1", "b": "edit", "label": 0},
    ]
    (tmp_path / "own_edits.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    assert [pair.half for pair in open_pairs(tmp_path)] == [0, MIXED, 1]
