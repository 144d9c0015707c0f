from __future__ import annotations

import random

import numpy as np
import pytest

from gateway.routing.difficulty.features import Features, extract
from gateway.routing.difficulty.ridge import Array
from gateway.routing.strategy.models import ModelAdequacies, fit_adequacies

TOPICS = ("planets", "rivers", "kings", "metals", "birds", "engines", "poems", "islands")
CHANCES = {"small": (0.2, 0.9), "middle": (0.6, 0.9), "large": (0.95, 0.95)}
"""Model → chance of a good answer to a proof, and to a name."""


def _outcomes(count: int, seed: int) -> tuple[list[Features], Array, dict[str, Array]]:
    """Texts, whether each is a proof, and each model's quality; `middle` was not asked every third."""
    chance = random.Random(seed)
    proofs = np.array([number % 2 == 0 for number in range(count)], dtype=float)
    verbs = ("Name an example of", "Prove a theorem about")
    texts = [
        f"{verbs[int(proof)]} {' and '.join(chance.sample(TOPICS, 2))} {number}" for number, proof in enumerate(proofs)
    ]
    qualities = {
        model: np.array([float(chance.random() < (hard if proof else easy)) for proof in proofs])
        for model, (hard, easy) in CHANCES.items()
    }
    qualities["middle"][::3] = np.nan
    return [extract(text) for text in texts], proofs, qualities


FEATURES, PROOFS, QUALITIES = _outcomes(600, 3)
FOLDS = np.arange(600) // 2 % 5


@pytest.fixture(scope="module")
def fitted() -> tuple[ModelAdequacies, Array]:
    return fit_adequacies(FEATURES, QUALITIES, FOLDS)


def test_each_model_is_trusted_as_far_as_it_was_good(fitted: tuple[ModelAdequacies, Array]) -> None:
    for text, place in (("Prove a theorem about birds and poems", 0), ("Name an example of birds and poems", 1)):
        for model, chance in fitted[0].of(text).items():
            assert abs(chance - CHANCES[model][place]) < 0.15, (text, model)


def test_what_is_promised_on_unseen_folds_is_what_happens(fitted: tuple[ModelAdequacies, Array]) -> None:
    _, chances = fitted
    for place, outcomes in enumerate(QUALITIES.values()):
        known = ~np.isnan(outcomes)
        for part in (PROOFS == 0, PROOFS == 1):
            members = known & part
            assert abs(chances[members, place].mean() - outcomes[members].mean()) < 0.05


def test_chances_are_cross_fitted(fitted: tuple[ModelAdequacies, Array]) -> None:
    """Outcomes that nothing explains are not foretold, however often a prompt has a word of its own."""
    noise = np.random.default_rng(2).permutation(np.arange(600) % 2).astype(float)
    _, chances = fit_adequacies(FEATURES, {"coin": noise}, FOLDS)
    good, bad = chances[noise == 1, 0], chances[noise == 0, 0]
    assert abs((good[:, None] > bad).mean() - 0.5) < 0.1


def test_quality_counts_from_one_half() -> None:
    fitted, _ = fit_adequacies(FEATURES, {"fair": np.full(600, 0.5), "poor": np.full(600, 0.49)}, FOLDS)
    chances = fitted.of("Name an example of rivers and kings")
    assert chances["fair"] > 0.98
    assert chances["poor"] < 0.02


def test_it_comes_back_from_its_arrays(fitted: tuple[ModelAdequacies, Array]) -> None:
    arrays = fitted[0].arrays()
    assert all(each.dtype.kind in "iuf" for each in arrays.values())
    copy = ModelAdequacies.read(fitted[0].models, arrays)
    for features in FEATURES[:20]:
        wanted, found = fitted[0].of_features(features), copy.of_features(features)
        assert found.keys() == wanted.keys()
        assert np.allclose(list(found.values()), list(wanted.values()), atol=0.01)
    with pytest.raises(ValueError, match="do not belong together"):
        ModelAdequacies.read(("small",), arrays)


def test_text_without_a_known_word_gets_a_chance_too(fitted: tuple[ModelAdequacies, Array]) -> None:
    for text in ("", "¿?", "x" * 50):
        assert all(0 < chance < 1 for chance in fitted[0].of(text).values())


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        fit_adequacies([], {"small": np.zeros(0)}, np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="at least one"):
        fit_adequacies(FEATURES[:1], {}, np.zeros(1, np.int64))
