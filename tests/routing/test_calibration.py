from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest

from gateway.routing.fit.calibration import LOSSES, calibration_error, curves
from gateway.routing.fit.corpus import Corpus, read_corpus

CHANCE = np.random.default_rng(7)
STANDARD = CHANCE.normal(size=2000)
ADEQUATE = CHANCE.random(2000) < 1 / (1 + np.exp(-(1.0 - 0.8 * STANDARD)))


def _corpus(tmp_path: Path, middle: bool) -> Corpus:
    rows = []
    for number, good in enumerate(ADEQUATE.tolist()):
        row = {"prompt": f"prompt number {number}", "w": float(good), "s": 1.0, "dataset": f"set{number % 2}"}
        if middle:
            row["q"] = {"a middle one": float(good or number % 3 > 0)}
        rows.append(row)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return read_corpus([path], lambda _: None)


def test_each_cutoff_keeps_the_expected_loss_within_its_share(tmp_path: Path) -> None:
    fitted = curves(_corpus(tmp_path, middle=False), STANDARD)
    for loss, cutoff in zip(fitted.losses, fitted.cutoffs[0], strict=True):
        lost = (~ADEQUATE & (cutoff >= STANDARD)).mean()
        assert lost <= loss + 0.015
    assert fitted.cutoffs[0][0] < STANDARD.min()
    assert fitted.cutoffs[0][-1] > STANDARD.max()


def test_without_middle_models_the_near_curve_is_the_lower_one(tmp_path: Path) -> None:
    fitted = curves(_corpus(tmp_path, middle=False), STANDARD)
    assert np.array_equal(fitted.coefficients[0], fitted.coefficients[1])


def test_a_middle_model_gets_a_curve_of_its_own(tmp_path: Path) -> None:
    fitted = curves(_corpus(tmp_path, middle=True), STANDARD)
    assert fitted.coefficients[1][0] > fitted.coefficients[0][0]
    assert (fitted.cutoffs[1] >= fitted.cutoffs[0]).mean() > 0.9


def test_a_true_promise_has_a_small_error_and_a_false_one_a_large(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path, middle=False)
    fitted = curves(corpus, STANDARD)
    assert calibration_error(corpus, STANDARD, fitted) < 0.03
    assert calibration_error(corpus, STANDARD - 3, fitted) > 0.1


def test_losses_begin_at_nothing_and_ascend() -> None:
    assert LOSSES[0] == 0
    assert (np.diff(LOSSES) > 0).all()
    assert LOSSES[-1] == pytest.approx(0.5)
