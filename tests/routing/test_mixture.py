from __future__ import annotations

import random

import numpy as np
import orjson
import pytest

from gateway.routing.fit.corpus import Corpus, read_corpus
from gateway.routing.fit.evaluation import apgr
from gateway.routing.fit.mixture import fit_model, gains, refine

WORDS = ("amber", "basalt", "copper", "delta", "ember", "fjord", "granite", "harbour")


def _quiet(_: str) -> None:
    return None


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two kinds of prompt, told apart by their form, in which the same word means the opposite."""
    chance, folder, paths = random.Random(9), tmp_path_factory.mktemp("kinds"), []
    for name, form in (("asked", "Who knows {}?"), ("sums", "{} = $ 12, 13, 14, 15 %")):
        rows = []
        for number in range(240):
            words = chance.sample(WORDS, 3)
            hard = ("amber" in words) == (name == "asked")
            prompt = form.format(f"{' '.join(words)} {number}")
            rows.append({"prompt": prompt, "w": float(chance.random() < (0.1 if hard else 0.9)), "s": 1.0})
        paths.append(folder / f"{name}.jsonl")
        paths[-1].write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return read_corpus(paths, _quiet)


def _halves(corpus: Corpus) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    chosen: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.arange(len(corpus)) % 2 == 0
    return chosen


def test_each_kind_is_ordered_by_its_own_expert(corpus: Corpus) -> None:
    training = _halves(corpus)
    model = fit_model(corpus, training)
    for number in range(2):
        test = ~training & (corpus.sets == number)
        assert apgr(model.scores[test], corpus.weak[test], corpus.strong[test]) > 0.65
    assert model.scorer.gates.shape[0] == 2


def test_a_small_set_gets_no_expert_and_one_alone_an_open_gate(corpus: Corpus) -> None:
    few = _halves(corpus) & ((corpus.sets == 0) | (np.arange(len(corpus)) < 280))
    assert len(fit_model(corpus, few).scorer.gates) == 1
    alone = fit_model(corpus, corpus.sets == 0).scorer
    assert np.allclose(alone.gates, 0, atol=1e-6)
    assert np.allclose(alone.gate_intercepts, 1)
    none = fit_model(corpus, np.arange(len(corpus)) < 60)
    assert len(none.scorer.gates) == 0
    assert np.isfinite(none.scores).all()


def test_what_serving_computes_is_what_training_saw(corpus: Corpus) -> None:
    training = _halves(corpus)
    first = fit_model(corpus, training & (corpus.sets == 0))
    for model in (fit_model(corpus, training), first, refine(first.scorer, corpus, training & (corpus.sets == 1))):
        served = [model.scorer.score(each) for each in corpus.features[::9]]
        assert np.allclose(served, model.scores[::9], atol=1e-4)


def test_a_prior_leads_until_outcomes_say_otherwise(corpus: Corpus) -> None:
    prior = fit_model(corpus, corpus.sets == 0)
    asked, sums = (np.flatnonzero(corpus.sets == number) for number in range(2))
    few = np.isin(np.arange(len(corpus)), asked[:20])
    led = refine(prior.scorer, corpus, few).scores[asked[20:]]
    assert apgr(led, corpus.weak[asked[20:]], corpus.strong[asked[20:]]) > 0.65
    many = np.isin(np.arange(len(corpus)), sums[:160])
    turned, test = refine(prior.scorer, corpus, many).scores, sums[160:]
    wrong = apgr(prior.scores[test], corpus.weak[test], corpus.strong[test])
    assert wrong < 0.5 < apgr(turned[test], corpus.weak[test], corpus.strong[test])


def test_half_of_a_sets_mean_gain_is_taken_off(corpus: Corpus) -> None:
    chosen = corpus.sets == 1
    target, weights = gains(corpus, chosen)
    gain = corpus.strong - corpus.weak
    assert np.allclose(target[chosen], gain[chosen] - gain[chosen].mean() / 2, atol=1e-6)
    assert not weights[~chosen].any()
    assert np.isclose(weights.sum(), chosen.sum(), rtol=1e-4)
