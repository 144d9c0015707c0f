from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson

from gateway.cache.verifier.features import NAMES
from gateway.cache.verifier.verify import WEIGHTS, Scorer
from training.verifier import fit, labelled_pairs, own_pairs


def test_what_was_fitted_scores_as_it_was_taught() -> None:
    chance = np.random.default_rng(0)
    rows = chance.normal(size=(400, len(NAMES)))
    labels = (rows[:, 0] > rows[:, 1]).astype(float)
    scorer = Scorer(orjson.loads(orjson.dumps(fit(rows, labels))))
    right = [(scorer.score(list(row)) > 0.5) == bool(label) for row, label in zip(rows, labels, strict=True)]
    assert np.mean(right) > 0.95


def test_the_packaged_weights_belong_to_the_features() -> None:
    assert tuple(orjson.loads(WEIGHTS.read_bytes())["names"]) == NAMES


def test_our_own_pairs_contradict_themselves_nowhere() -> None:
    pairs = list(own_pairs())
    same = {(left, right) for left, right, label in pairs if label}
    assert not same & {(left, right) for left, right, label in pairs if not label}


def test_pairs_in_two_languages_teach_nothing(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_bytes(
        orjson.dumps({"a": "x", "b": "y", "label": 1, "set": "mixed"})
        + b"\n"
        + orjson.dumps({"a": "x", "b": "z", "label": 0, "set": "swap_neg"})
    )
    assert list(labelled_pairs([file])) == [("x", "z", 0)]
